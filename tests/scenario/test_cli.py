"""The command line without a gateway: what it says, and the exit code that goes with it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def tidings(
    home: Path, *arguments: str, stdin: bytes | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TIDINGS_")}
    return subprocess.run(
        [sys.executable, "-m", "bots.main", *arguments],
        input=stdin.decode() if stdin is not None else None,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**kept, "TIDINGS_HOME": str(home), "TIDINGS_HTTP__PORT": "0", **environment},
        timeout=60,
        check=False,
    )


def test_help_names_every_command_and_every_exit_code(tmp_path: Path) -> None:
    shown = tidings(tmp_path, "--help")
    assert shown.returncode == 0
    for word in ("run", "chat", "notify", "allow", "status", "doctor", "version", "69", "75", "76", "78"):
        assert word in shown.stdout
    assert "--no-chat" in tidings(tmp_path, "run", "--help").stdout


def test_version_says_one_line(tmp_path: Path) -> None:
    shown = tidings(tmp_path, "version")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith("tidings ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [["frobnicate"], ["notify"], ["chat", "--timeout", "soon"], ["--homely"]])
def test_a_wrong_command_line_exits_64(tmp_path: Path, arguments: list[str]) -> None:
    shown = tidings(tmp_path, *arguments)
    assert shown.returncode == 64
    assert "Traceback" not in shown.stderr


def test_an_empty_message_is_a_wrong_command_line(tmp_path: Path) -> None:
    for stdin, arguments in ((b" \n", ["notify", "console"]), (b"", ["notify", "console", "-"])):
        shown = tidings(tmp_path, *arguments, stdin=stdin)
        assert (shown.returncode, "empty" in shown.stderr) == (64, True)


@pytest.mark.parametrize("arguments", [["chat"], ["status"], ["status", "--json"], ["notify", "console", "hi"]])
def test_without_a_gateway_it_says_how_to_start_one(tmp_path: Path, arguments: list[str]) -> None:
    shown = tidings(tmp_path, *arguments)
    assert shown.returncode == 69
    assert shown.stderr == f"tidings: no gateway runs in {tmp_path}; start one with: tidings run\n"
    assert shown.stdout == ""


def test_a_wrong_setting_is_one_line_and_exits_78(tmp_path: Path) -> None:
    (tmp_path / "tidings.toml").write_text("[limits]\nruns = 0\n")
    shown = tidings(tmp_path, "run")
    expected = f"tidings: {tmp_path}/tidings.toml: [limits] runs = 0 must be greater than or equal to 1\n"
    assert (shown.returncode, shown.stderr) == (78, expected)


@pytest.mark.parametrize(
    ("arguments", "environment", "words"),
    [
        (["run"], {"TIDINGS_LIMITS__RUNS": "many"}, "TIDINGS_LIMITS__RUNS = 'many' must be a valid integer"),
        (["--config", "nowhere.toml", "run"], {}, "nowhere.toml: there is no such file"),
        (["run"], {"TIDINGS_CONFIG": "nowhere.toml"}, "nowhere.toml: there is no such file"),
        (["run"], {"TIDINGS_BOT__AGENT": "nobody"}, "is not an agent; write one of demo, echo"),
        (["run"], {"TIDINGS_BOT__AGENT": "no.such:Agent"}, "cannot be loaded: No module named"),
        (["run"], {"TIDINGS_BOT__AGENT": "core.errors:Nobody"}, "cannot be loaded"),
        (["run"], {"TIDINGS_BOT__AGENT": "core.errors:TidingsError"}, "has no run(turn)"),
    ],
)
def test_every_wrong_setting_names_its_place(
    tmp_path: Path, arguments: list[str], environment: dict[str, str], words: str
) -> None:
    shown = tidings(tmp_path, *arguments, **environment)
    assert shown.returncode == 78
    assert words in shown.stderr
    assert shown.stderr.count("\n") == 1


def test_the_doctor_finds_a_wrong_setting_and_looks_on(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o755)
    shown = tidings(tmp_path / "home", "doctor", TIDINGS_LIMITS__RUNS="0")
    lines = shown.stdout.splitlines()
    assert shown.returncode == 1
    assert lines[0].startswith("fail  settings: TIDINGS_LIMITS__RUNS")
    assert any(line.startswith("warn  home: others may look inside") for line in lines)
    assert lines[-1] == "ok    gateway: none runs now; start it with: tidings run"


def test_the_doctor_warns_of_what_is_misspelt(tmp_path: Path) -> None:
    (tmp_path / "tidings.toml").write_text("[limits]\nrusn = 1\n")
    shown = tidings(tmp_path / "absent", "--config", str(tmp_path / "tidings.toml"), "doctor")
    assert "did you mean runs?" in shown.stdout
    assert "will be made at the first start" in shown.stdout
    assert shown.returncode == 0


def test_a_home_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    shown = tidings(tmp_path / "file" / "home", "run")
    assert (shown.returncode, "choose another with --home" in shown.stderr) == (78, True)
    assert "is not a folder" in tidings(tmp_path / "file", "doctor").stdout
    assert tidings(tmp_path / "file", "status").returncode == 69
