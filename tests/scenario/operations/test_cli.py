"""The command line without a gateway: what it says, and the exit code that goes with it."""

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.security import command_lines
from tests.worlds.process import ROOT, surroundings, tidings

MODEL = {"TIDINGS_BOT__MODEL": "openai:gpt-5-mini", "OPENAI_API_KEY": "sk-a-very-secret-key"}
# Says when the heavy library comes in.
WATCHED = """
import sys
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "pydantic_ai":
            print("the library comes in", file=sys.stderr, flush=True)
sys.meta_path.insert(0, Watch())
from tidings.bots.main import main
main()
"""


def test_help_names_every_command_and_every_exit_code(tmp_path: Path) -> None:
    shown = tidings(tmp_path, "--help")
    assert shown.returncode == 0
    for word in ("run", "chat", "notify", "people", "audit", "status", "doctor", "version", "69", "75", "76", "78"):
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
        (["run"], {"TIDINGS_BOT__AGENT": "nobody"}, "is not an agent; write one of demo, echo, assistant"),
        (["run"], {"TIDINGS_BOT__AGENT": "no.such:Agent"}, "cannot be loaded: No module named"),
        (["run"], {"TIDINGS_BOT__AGENT": "tidings.core.errors:Nobody"}, "cannot be loaded"),
        (["run"], {"TIDINGS_BOT__AGENT": "tidings.core.errors:TidingsError"}, "has no run(turn)"),
        (["run"], {"TIDINGS_BOT__MODEL": "gpt-5-mini"}, 'TIDINGS_BOT__MODEL = "gpt-5-mini" is not whole'),
        (["run"], {"TIDINGS_BOT__MODEL": "openai:a", "TIDINGS_BOT__TOOLS": "tiem"}, "did you mean time?"),
        (["run"], {**MODEL, "TIDINGS_BOT__API_KEY": "env:NOBODYS"}, "names the variable NOBODYS, which is not set"),
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
    assert any(line.startswith("warn  home: other users can look inside") for line in lines)
    assert lines[-1] == "ok    gateway: not running; start it with: tidings run"


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


def test_the_doctor_says_of_each_bot_who_answers_and_with_what(tmp_path: Path) -> None:
    (tmp_path / "tidings.toml").write_text("""
        [bots.rosa]
        model = "openai:gpt-5-mini"
        fallbacks = ["anthropic:claude-sonnet-4-5"]
        persona = "You are Rosa."
        tools = ["time", "terminal"]
        approvals.modes = { terminal = "allow" }
        [bots.rosa.mcp.wiki]
        url = "http://127.0.0.1:1/mcp"
        [bots.nearby]
        model = "llama3"
        base_url = "http://127.0.0.1:1/v1"
        tools = []
        [bots.parrot]
        agent = "echo"
    """)
    shown = tidings(tmp_path, "doctor", OPENAI_API_KEY="sk-one-secret", ANTHROPIC_API_KEY="sk-other-secret")
    lines = [line for line in shown.stdout.splitlines() if line.startswith("ok    bot ")]
    assert lines == [
        "ok    bot rosa: assistant with openai:gpt-5-mini, else anthropic:claude-sonnet-4-5; key found in the"
        " environment; persona of 13 characters; tools time, terminal;"
        " MCP servers wiki",
        "ok    bot nearby: assistant with llama3; no key for http://127.0.0.1:1/v1, which may need none;"
        " no persona; no tools",
        "ok    bot parrot: echo answers",
    ]
    assert "[bots.rosa] approvals: it acts without asking with process_control, terminal;" in shown.stdout
    assert shown.returncode == 0
    assert "secret" not in shown.stdout + shown.stderr


# What is wrong with a bot, and what is said of it.
FAULTS: list[tuple[dict[str, str], str]] = [
    ({"TIDINGS_BOT__MODEL": "openai:gpt-5-mini"}, "Set the `OPENAI_API_KEY` environment variable"),
    ({"TIDINGS_BOT__MODEL": "opnai:gpt-5-mini"}, "the model opnai:gpt-5-mini cannot be used here"),
    ({**MODEL, "TIDINGS_BOT__FALLBACKS": "nobody:x"}, "the model nobody:x cannot be used here"),
    ({**MODEL, "TIDINGS_BOT__TOOLS": "time,tiem"}, "there is no tool tiem, did you mean time?"),
    ({"TIDINGS_BOT__AGENT": "no.such:Agent"}, "cannot be loaded: No module named"),
]


def test_the_doctor_fails_a_bot_that_could_not_answer_and_looks_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    rows = [(["doctor"], environment) for environment, _ in FAULTS]
    for shown, (_, words) in zip(command_lines.tidings(tmp_path, *rows), FAULTS, strict=True):
        (line,) = [line for line in shown.out.splitlines() if line.startswith("fail")]
        assert line.startswith("fail  bot ")
        assert words in line
        assert shown.code == 1
        assert "gateway: not running" in shown.out


def test_a_gateway_with_a_model_serves_before_the_heavy_library_comes_in(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WATCHED, "run", "--no-chat"],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=surroundings(tmp_path, **MODEL),
    ) as gateway:
        assert gateway.stderr is not None
        seen: list[str] = []
        while not seen or "the library comes in" not in seen[-1]:
            seen.append(gateway.stderr.readline())
            assert seen[-1], f"it ended early: {seen}"
        chosen = tidings(tmp_path, "chat", stdin=b"/model\n")
        gateway.send_signal(signal.SIGTERM)
        rest = gateway.stderr.read()
    assert any("the gateway serves in" in line for line in seen)
    assert chosen.stdout.startswith("openai:gpt-5-mini answers here."), chosen
    assert (gateway.returncode, "Traceback" in rest, MODEL["OPENAI_API_KEY"] in rest) == (0, False, False)


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({}, "set TIDINGS_BOT__MODEL=openai:gpt-5-mini and OPENAI_API_KEY"),
        (MODEL, "openai:gpt-5-mini answers; /model says which others can."),
        ({"TIDINGS_BOT__AGENT": "echo", "TIDINGS_BOTS__ROSA__AGENT": "demo"}, "echo answers. Other bots: rosa."),
    ],
)
def test_in_a_terminal_one_is_told_who_answers(tmp_path: Path, environment: dict[str, str], words: str) -> None:
    controller, terminal = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "tidings.bots.main", "run"],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        cwd=ROOT,
        env=surroundings(tmp_path, TERM="xterm", **environment),
    ) as gateway:
        os.close(terminal)
        seen = ""
        while "you> " not in seen:
            seen += os.read(controller, 4096).decode()
        os.write(controller, b"/quit\r")
        assert gateway.wait(60) == 0
    os.close(controller)
    assert words in seen
