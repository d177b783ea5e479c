"""The settings: what the file says, what the environment says over it, and how each mistake is told."""

from pathlib import Path

import pytest
from pydantic import Field, SecretStr

from tidings.bots.app.roster import Bot
from tidings.bots.app.settings import Loaded, load
from tidings.bots.assistant.settings import ModelChoice, Rail
from tidings.core.errors import ConfigError
from tidings.core.settings import Section


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
        ("[bot.limits]\nrequest = 1", ["[bot.limits]", "did you mean requests?"]),
        ("[bots.rosa]\nmodle = 'a:b'", ["[bots.rosa]", "did you mean model?"]),
        ("[bots.rosa.mcp.wiki]\nurl = 'x'\nheadres = {}", ["[bots.rosa.mcp.wiki]", "did you mean headers?"]),
        (
            "[bot]\nmodel = 'a:b'\nfallbacks = ['a:c', {model = 'a:d', base_ulr = 'x'}]",
            ["[bot.fallbacks #2]", "base_url?"],
        ),
        ("[[rules]]\nbot = 'demo'\n[[rules]]\nbot = 'demo'\ncaht = '1'", ["[rules #2]", "did you mean chat?"]),
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
        ("TIDINGS_BOT__LIMITS__REQUEST", "TIDINGS_BOT__LIMITS__REQUESTS"),
        ("TIDINGS_BOT__RAILS__SAMECALL", "TIDINGS_BOT__RAILS__SAME_CALL"),
        ("TIDINGS_BOTS__ROSA__BASEURL", "TIDINGS_BOTS__NAME__BASE_URL"),
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
        ("[bot.rails]\nsame_call = [4, 2]", ["[bot.rails] same_call", "must halt later than it warns"]),
        ("[bot.mcp.wiki]", ["[bot.mcp] wiki", "needs either a command or a url"]),
        ("[[rules]]\nchat = '1'", ["[rules #1]", "needs bot or busy"]),
        ("[[rules]]\nbusy = 'loud'", ["[rules #1] busy = 'loud' must be 'queue', 'collect', 'steer' or 'interrupt'"]),
        ("[bots.a]\nbusy = 'loud'", ["[bots.a] busy = 'loud' must be 'queue', 'collect', 'steer' or 'interrupt'"]),
        ("[[rules]]\nbot = 'rosa'", ["[rules #1] bot = 'rosa'", "there are: demo"]),
        ("bots = 3", ["[bots]", "must be a table"]),
        ("[allowances.gateway]\nmoney = inf", ["[allowances.gateway] money = inf", "less than or equal to"]),
        (f"[allowances.gateway]\ntokens = {10**30}", ["[allowances.gateway] tokens", "less than or equal to"]),
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
    account = '[pigeon.accounts.work]\ntoken = "tok-of-work"\nsigning_secret = "s-456"\napi_key = "misplaced"'
    loaded = read(tmp_path, account)
    assert set(loaded.secrets) == {"tok-of-work", "s-456", "misplaced"}
    assert "misplaced" not in repr(loaded.warnings)
    assert "tok-of-work" not in complaint(tmp_path, '[pigeon.accounts.work]\ntoken = ["tok-of-work"]')


@pytest.mark.parametrize(
    ("bot", "called"),
    [
        (Bot(), "demo"),
        (Bot(model="openai:gpt-5-mini"), "assistant"),
        (Bot(name="rosa"), "rosa"),
        (Bot(agent="my.bots:Helper"), "Helper"),
        (Bot(agent=":"), "bot"),
    ],
)
def test_a_bot_always_has_a_name(bot: Bot, called: str) -> None:
    assert bot.called == called


def test_one_bot_can_be_set_up_by_the_environment_alone(tmp_path: Path) -> None:
    loaded = read(
        tmp_path,
        TIDINGS_BOT__MODEL="openai-chat:gpt",
        TIDINGS_BOT__BASE_URL="http://127.0.0.1:1/v1",
        TIDINGS_BOT__API_KEY="sk-123456",
        TIDINGS_BOT__FALLBACKS="openai-chat:a, openai-chat:b",
        TIDINGS_BOT__MODELS="a,b",
        TIDINGS_BOT__TOOLS="time",
        TIDINGS_BOT__LIMITS__REQUESTS="3",
        TIDINGS_BOT__LIMITS__MONEY="0.5",
        TIDINGS_BOT__STALL_SECONDS="2.5",
        TIDINGS_BOT__RAILS__SAME_CALL="2,5",
        TIDINGS_BOT__RAILS__ONE_TOOL="[1, 2]",
        TIDINGS_BOT__STREAM="false",
        TIDINGS_BOT__IMAGES="true",
        TIDINGS_BOT__MCP__CLOCK__COMMAND="uvx,clock",
        TIDINGS_BOT__MCP__CLOCK__ENV='{"TOKEN": "t-123456"}',
    )
    bot = loaded.bot
    assert (bot.chosen_agent, bot.model, bot.base_url) == ("assistant", "openai-chat:gpt", "http://127.0.0.1:1/v1")
    assert bot.fallbacks == (ModelChoice(model="openai-chat:a"), ModelChoice(model="openai-chat:b"))
    assert (bot.models, bot.tools, bot.stream, bot.images) == (("a", "b"), ("time",), False, True)
    assert (bot.limits.requests, bot.limits.money, bot.stall_seconds) == (3, 0.5, 2.5)
    assert (bot.rails.same_call, bot.rails.one_tool) == (Rail(warn=2, halt=5), Rail(warn=1, halt=2))
    assert bot.mcp["clock"].command == ("uvx", "clock")
    assert set(loaded.secrets) == {"sk-123456", "t-123456"}
    assert loaded.warnings == ()
    assert "sk-123456" not in repr(loaded)


def test_setting_a_model_makes_the_assistant_the_agent(tmp_path: Path) -> None:
    assert read(tmp_path).bot.chosen_agent == "demo"
    assert read(tmp_path, TIDINGS_BOT__MODEL="openai:a").bot.chosen_agent == "assistant"
    assert read(tmp_path, TIDINGS_BOT__MODEL="openai:a", TIDINGS_BOT__AGENT="echo").bot.chosen_agent == "echo"
    assert 'AGENT = "assistant" needs a model' in complaint(tmp_path, TIDINGS_BOT__AGENT="assistant")


SEVERAL = "[bots.tom]\nagent = 'echo'\n[bots.rosa]\nmodel = 'openai:a'\n"


@pytest.mark.parametrize(
    ("toml", "environment", "bots"),
    [
        ("", {}, ["demo"]),
        (SEVERAL, {}, ["tom", "rosa"]),
        (SEVERAL + "[bot]", {}, ["tom", "rosa"]),
        (SEVERAL, {"TIDINGS_BOT__MODEL": ""}, ["tom", "rosa"]),
        (SEVERAL, {"TIDINGS_BOT__MODEL": "openai:b"}, ["assistant", "tom", "rosa"]),
        (SEVERAL + "[bot]\nagent = 'demo'", {}, ["demo", "tom", "rosa"]),
        (SEVERAL, {"TIDINGS_BOTS__ZOE__AGENT": "echo"}, ["tom", "rosa", "zoe"]),
        (SEVERAL, {"TIDINGS_BOTS__ROSA__AGENT": "echo"}, ["tom", "rosa"]),
    ],
)
def test_the_default_comes_first_and_is_the_one_bot_wherever_that_is_set(
    tmp_path: Path, toml: str, environment: dict[str, str], bots: list[str]
) -> None:
    loaded = read(tmp_path, toml, **environment)
    assert list(loaded.bots) == bots
    assert [bot.called for bot in loaded.bots.values()] == bots
    assert loaded.bot.called == bots[0]
    assert loaded.warnings == ()


def test_two_bots_of_one_name_are_refused(tmp_path: Path) -> None:
    assert "give [bot] another name" in complaint(tmp_path, SEVERAL + "[bot]\nname = 'rosa'")


def test_a_variable_means_the_name_that_the_file_spells(tmp_path: Path) -> None:
    loaded = read(tmp_path, "[bots.Rosa-Two]\nmodel = 'openai:a'", TIDINGS_BOTS__ROSA_TWO__API_KEY="sk-123456")
    assert list(loaded.bots) == ["Rosa-Two"]
    assert loaded.bot.api_key.get_secret_value() == "sk-123456"
    text = complaint(tmp_path, "[bots.Rosa-Two]\nmodel = 'openai:a'", TIDINGS_BOTS__ROSA_TWO__API_KEY="env:NONE")
    assert text.startswith("TIDINGS_BOTS__ROSA_TWO__API_KEY")


def test_what_is_hardly_meant_is_a_warning(tmp_path: Path) -> None:
    (warning,) = read(tmp_path, TIDINGS_BOT__API_KEY="sk-123456").warnings
    assert "[bot] model is not set, so the demo answers" in warning
    (warning,) = read(tmp_path, "[bots.rosa]\nname = 'rosalind'\nagent = 'echo'").warnings
    assert "[bots.rosa] name is ignored: the bot is called rosa" in warning


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("[allowances.bots.rosa]\nruns = 1", "limits nothing: there is no such bot, only demo"),
        ('[allowances.people."123"]\nruns = 1', "limits nothing: write platform:ID, such as telegram:123"),
        ('[allowances.chats."-100"]\nruns = 1', "limits nothing: write platform:ID, such as telegram:123"),
    ],
)
def test_an_allowance_of_nobody_is_a_warning(tmp_path: Path, toml: str, words: str) -> None:
    (warning,) = read(tmp_path, toml).warnings
    assert "[allowances." in warning
    assert words in warning


def test_a_key_may_be_named_by_its_variable_or_its_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-of-the-file\n")
    toml = """
        [bot]
        model = "openai:a"
        api_key = "env:MY_KEY"
        fallbacks = [{ model = "anthropic:b", api_key = "file:key" }]
    """
    loaded = read(tmp_path, toml, MY_KEY=" sk-of-mine ")
    assert loaded.bot.api_key.get_secret_value() == "sk-of-mine"
    assert loaded.bot.fallbacks[0].api_key.get_secret_value() == "sk-of-the-file"
    assert set(loaded.secrets) == {"sk-of-mine", "sk-of-the-file"}


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("env:NOT_THERE", "names the variable NOT_THERE, which is not set; set it"),
        ("file:nowhere", "names the file nowhere, which cannot be read: No such file"),
        ("file:empty", "names the file empty, which is empty"),
        ("file:latin", "names the file latin, which is not UTF-8 text"),
    ],
)
def test_a_key_that_is_not_where_it_should_be_is_told_with_the_setting(
    tmp_path: Path, reference: str, words: str
) -> None:
    (tmp_path / "empty").write_text(" \n")
    (tmp_path / "latin").write_bytes(b"\xe9")
    toml = f"[bots.rosa]\nmodel = 'openai:a'\napi_key = '{reference}'"
    assert f"[bots.rosa] api_key {words}" in complaint(tmp_path, toml)
    toml = f"[bot]\nmodel = 'openai:a'\nfallbacks = ['openai:b', {{ model = 'openai:c', api_key = '{reference}' }}]"
    assert f"[bot.fallbacks #2] api_key {words}" in complaint(tmp_path, toml)


def test_the_keys_of_the_providers_own_variables_are_secrets_too(tmp_path: Path) -> None:
    variables = {"OPENAI_API_KEY": "sk-of-openai", "API_KEYS_FOLDER": "somewhere"}
    assert read(tmp_path, **variables).secrets == ()
    assert read(tmp_path, TIDINGS_BOT__MODEL="openai:a", **variables).secrets == ("sk-of-openai",)
    assert read(tmp_path, TIDINGS_BOT__AGENT="my.bots:Helper", **variables).secrets == ("sk-of-openai",)
    others = ("HF_TOKEN", "HEROKU_INFERENCE_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_BEARER_TOKEN_BEDROCK")
    for name in others:
        assert read(tmp_path, TIDINGS_BOT__MODEL="openai:a", **{name: "hush-hush"}).secrets == ("hush-hush",), name


def test_a_persona_is_a_text_or_a_markdown_file_beside_the_settings(tmp_path: Path) -> None:
    (tmp_path / "rosa.md").write_text("# Rosa\n\nYou are Rosa.\n")
    assert read(tmp_path, TIDINGS_BOT__PERSONA="You are Tom.").bot.persona == "You are Tom."
    assert read(tmp_path, TIDINGS_BOT__PERSONA="rosa.md").bot.persona == "# Rosa\n\nYou are Rosa."
    assert read(tmp_path, TIDINGS_BOT__PERSONA="You answer\nas told in rosa.md").bot.persona.endswith("in rosa.md")
    text = complaint(tmp_path, TIDINGS_BOT__PERSONA="nobody.md")
    assert text == "TIDINGS_BOT__PERSONA names the file nobody.md, which cannot be read: No such file or directory"


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("[bot]\nmodel = 'gpt-5'", '[bot] model = "gpt-5" is not whole: write "provider:name"'),
        ("[bot]\nmodel = 'openai:'", '[bot] model = "openai:" is not whole'),
        ("[bots.rosa]\nmodel = ':gpt-5'", '[bots.rosa] model = ":gpt-5" is not whole'),
        ("[bot]\nmodel = 'openai:a'\nfallbacks = ['b']", '[bot.fallbacks #1] model = "b" is not whole'),
        ("[bot]\nmodel = 'openai:a'\nfallbacks = [{}]", "[bot.fallbacks #1] model is empty"),
    ],
)
def test_a_model_needs_its_provider(tmp_path: Path, toml: str, words: str) -> None:
    assert words in complaint(tmp_path, toml)


def test_a_bare_name_will_do_for_a_server_with_an_address(tmp_path: Path) -> None:
    toml = "[bot]\nmodel = 'llama3'\nbase_url = 'http://127.0.0.1:1/v1'\nfallbacks = ['qwen3']"
    assert read(tmp_path, toml).bot.model == "llama3"


def secret(tmp_path: Path, toml: str, mode: int = 0o600) -> None:
    (tmp_path / "secrets.toml").write_text(toml)
    (tmp_path / "secrets.toml").chmod(mode)


def test_secrets_are_read_over_the_file_and_under_the_environment(tmp_path: Path) -> None:
    secret(tmp_path, "[pigeon.accounts.a]\ntoken = 'from secrets'\n[pigeon.accounts.b]\ntoken = 'also'\n")
    loaded = read(
        tmp_path,
        "[pigeon]\nname = 'tom'\n[pigeon.accounts.a]\ntoken = 'from the file'\nretries = 7",
        TIDINGS_PIGEON__ACCOUNTS__B__TOKEN="from outside",
    )
    accounts = {"a": Account(token="from secrets", retries=7), "b": Account(token="from outside")}
    assert loaded.platforms["pigeon"] == Pigeon(name="tom", accounts=accounts)
    assert {"from secrets", "from outside"} <= set(loaded.secrets)
    # What was written is kept, for the next start, and not shown.
    assert "'also'" in str(loaded.texts.secrets)
    assert "also" not in repr(loaded)


def test_secrets_that_others_may_read_are_refused(tmp_path: Path) -> None:
    secret(tmp_path, "[pigeon]\nname = 'x'", 0o640)
    assert complaint(tmp_path).endswith(f"close it with: chmod 600 {tmp_path}/secrets.toml")


@pytest.mark.parametrize(
    ("toml", "secrets", "place"),
    [
        ("", "[pigeon.accounts.a]\nretries = -1", "secrets.toml: [pigeon.accounts.a] retries = -1"),
        ("[pigeon.accounts.a]\nretries = -1", "[pigeon.accounts.a]\ntoken = 'x'", "tidings.toml: [pigeon.accounts.a]"),
        ("", "pigeon = 1", "secrets.toml: [pigeon]"),
        ("", "[pigeon", "secrets.toml: is not valid TOML"),
    ],
)
def test_a_mistake_is_told_of_the_file_that_has_it(tmp_path: Path, toml: str, secrets: str, place: str) -> None:
    secret(tmp_path, secrets)
    assert place in complaint(tmp_path, toml)


def test_a_misspelt_secret_is_told_with_the_nearest_name(tmp_path: Path) -> None:
    secret(tmp_path, "[pigeon.accounts.a]\ntokn = 'x'")
    (warning,) = read(tmp_path).warnings
    assert warning == (
        f"{tmp_path}/secrets.toml: [pigeon.accounts.a] has no key 'tokn', did you mean token?; it is ignored"
    )
