"""The settings: what the file says, what the environment says over it, and how each mistake is told."""

from pathlib import Path

import pytest
from pydantic import Field, SecretStr

from bots.settings import Bot, Loaded, load
from core.errors import ConfigError
from core.settings import Section


class Account(Section):
    token: str = ""
    signing_secret: SecretStr = SecretStr("")
    retries: int = Field(3, ge=0)


class Pigeon(Section):
    name: str = ""
    accounts: dict[str, Account] = {}


def read(tmp_path: Path, toml: str = "", file: Path | None = None, **environment: str) -> Loaded:
    if toml:
        (tmp_path / "tidings.toml").write_text(toml, encoding="utf-8")
    return load({"pigeon": Pigeon}, tmp_path, file, environment)


def complaint(tmp_path: Path, toml: str = "", file: Path | None = None, **environment: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, toml, file, **environment)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_without_a_file_everything_has_its_default(tmp_path: Path) -> None:
    loaded = read(tmp_path)
    assert loaded.core.limits.runs == 1000
    assert loaded.bot == Bot()
    assert loaded.platforms == {"pigeon": Pigeon()}
    assert loaded.warnings == ()


def test_the_environment_is_read_over_the_file(tmp_path: Path) -> None:
    loaded = read(
        tmp_path,
        '[limits]\nruns = 5\nqueued = 7\n[bot]\nagent = "echo"',
        TIDINGS_LIMITS__RUNS="6",
        TIDINGS_PIGEON__NAME="tom",
    )
    assert (loaded.core.limits.runs, loaded.core.limits.queued, loaded.bot.agent) == (6, 7, "echo")
    assert loaded.platforms["pigeon"] == Pigeon(name="tom")


def test_a_list_in_the_environment_is_json_or_plain_words(tmp_path: Path) -> None:
    for value in ('["pigeon:1", "pigeon:2"]', "pigeon:1, pigeon:2"):
        assert read(tmp_path, TIDINGS_ACCESS__ALLOW=value).core.access.allow == ("pigeon:1", "pigeon:2")


def test_an_account_can_come_from_the_environment_alone(tmp_path: Path) -> None:
    loaded = read(tmp_path, TIDINGS_PIGEON__ACCOUNTS__WORK__TOKEN="t-123")
    assert loaded.platforms["pigeon"] == Pigeon(accounts={"work": Account(token="t-123")})
    assert loaded.warnings == ()


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("[limts]\nruns = 1", ["limts", "did you mean limits?"]),
        ("[limits]\nrusn = 1", ["[limits]", "rusn", "did you mean runs?"]),
        ("[pigeon.accounts.work]\ntokne = 'x'", ["[pigeon.accounts.work]", "tokne", "did you mean token?"]),
        ("zzzzzzzz = 1", ["zzzzzzzz", "ignored"]),
    ],
)
def test_an_unknown_key_is_a_warning_with_the_nearest_name(tmp_path: Path, toml: str, words: list[str]) -> None:
    (warning,) = read(tmp_path, toml).warnings
    for word in ["tidings.toml", *words]:
        assert word in warning


@pytest.mark.parametrize(
    ("variable", "nearest"),
    [
        ("TIDINGS_LIMITS_RUNS", "TIDINGS_LIMITS__RUNS"),
        ("TIDINGS_LIMITS__RUSN", "TIDINGS_LIMITS__RUNS"),
        ("TIDINGS_BOT_AGENT", "TIDINGS_BOT__AGENT"),
    ],
)
def test_an_unknown_variable_is_a_warning_with_the_nearest_name(tmp_path: Path, variable: str, nearest: str) -> None:
    (warning,) = read(tmp_path, **{variable: "1"}).warnings
    assert variable in warning
    assert f"did you mean {nearest}?" in warning


def test_what_others_read_from_the_environment_is_no_mistake(tmp_path: Path) -> None:
    others = ("HOME", "CONFIG", "FAILPOINT", "FAILPOINT_TRACE", "SESSION_RUN")
    assert read(tmp_path, PATH="/bin", **{f"TIDINGS_{name}": "x" for name in others}).warnings == ()


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("[limits]\nruns = 0", ["[limits] runs = 0", "greater than or equal to 1"]),
        ('[limits]\nruns = "many"', ["[limits] runs = 'many'", "valid integer"]),
        ('[log]\nlevel = "loud"', ["[log] level", "'debug', 'info', 'warning' or 'error'"]),
        ("limits = 3", ["[limits]", "must be a table"]),
        ("[pigeon.accounts.work]\nretries = -1", ["[pigeon.accounts.work] retries = -1"]),
        ("[limits\nruns = 1", ["not valid TOML", "line 1"]),
        ("[limits]\nruns = 0\nqueued = 0", ["(and 1 more)"]),
    ],
)
def test_a_wrong_value_is_one_line_with_file_key_and_what_is_allowed(
    tmp_path: Path, toml: str, words: list[str]
) -> None:
    text = complaint(tmp_path, toml)
    for word in [str(tmp_path / "tidings.toml"), *words]:
        assert word in text


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("TIDINGS_LIMITS__RUNS", "0", "greater than or equal to 1"),
        ("TIDINGS_LOG__LEVEL", "loud", "'debug', 'info', 'warning' or 'error'"),
        ("TIDINGS_LIMITS", "7", "must be a table"),
        ("TIDINGS_LIMITS", "nonsense", "must be a table"),
        ("TIDINGS_ACCESS__ALLOW", "[1", "must be a list"),
    ],
)
def test_a_wrong_value_in_the_environment_names_the_variable(
    tmp_path: Path, variable: str, value: str, allowed: str
) -> None:
    text = complaint(tmp_path, "[limits]\nruns = 3", **{variable: value})
    assert text.startswith(variable)
    assert allowed in text
    assert "tidings.toml" not in text


def test_a_file_that_was_named_must_be_there_and_readable(tmp_path: Path) -> None:
    assert "no such file" in complaint(tmp_path, file=tmp_path / "other.toml")
    (tmp_path / "latin.toml").write_bytes(b'[bot]\nname = "\xe9"')
    assert "not UTF-8" in complaint(tmp_path, file=tmp_path / "latin.toml")
    assert "cannot be read" in complaint(tmp_path, file=tmp_path)


def test_secrets_are_collected_and_never_shown(tmp_path: Path) -> None:
    account = '[pigeon.accounts.work]\ntoken = "t-123"\nsigning_secret = "s-456"\napi_key = "misplaced"'
    loaded = read(tmp_path, account)
    assert set(loaded.secrets) == {"t-123", "s-456", "misplaced"}
    assert "misplaced" not in repr(loaded.warnings)
    assert "t-123" not in complaint(tmp_path, '[pigeon.accounts.work]\ntoken = ["t-123"]')


@pytest.mark.parametrize(
    ("bot", "called"),
    [
        (Bot(), "demo"),
        (Bot(name="rosa"), "rosa"),
        (Bot(agent="my.bots:Helper"), "Helper"),
        (Bot(agent=":"), "bot"),
    ],
)
def test_a_bot_always_has_a_name(bot: Bot, called: str) -> None:
    assert bot.called == called
