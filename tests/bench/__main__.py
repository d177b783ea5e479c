"""Prints the table of `make bench`: each figure beside its baseline and its goal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

SOCKET_SECONDS = 20.0


class Line(NamedTuple):
    what: str
    figure: float
    baseline: float | None
    goal: str
    unit: str
    # A baseline that stores the same rows; where there is only one, `baseline` is what is named.
    storing: float | None = None


def measure(name: str) -> dict[str, float]:
    figures: dict[str, float] = _measure(name, "tests.bench.measures", name)
    return figures


def _measure(name: str, *command: str) -> Any:
    print(f"  measuring {name} …", file=sys.stderr, flush=True)
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"bench: {name} failed\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


DEMO = {"TIDINGS_BOT__AGENT": "demo"}
# Nobody is there: a start asks no model anything.
MODEL = {"TIDINGS_BOT__MODEL": "none", "TIDINGS_BOT__BASE_URL": "http://127.0.0.1:9/v1"}


def start_to_ready(bot: dict[str, str]) -> tuple[float, float]:
    """CPU and wall seconds from nothing to a gateway that answers on its socket."""
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "TIDINGS_HOME": home, "TIDINGS_HTTP__PORT": "0", **bot}
        tidings = Path(sys.executable).with_name("tidings")
        began = time.perf_counter()
        process = subprocess.Popen(
            [tidings, "run"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        while not (Path(home) / "tidings.sock").exists():
            if process.poll() is not None or time.perf_counter() - began > SOCKET_SECONDS:
                raise SystemExit(f"bench: tidings did not start: {process.communicate()[1].decode()}")
            time.sleep(0.005)
        wall = time.perf_counter() - began
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), wall


def bare_start() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import asyncio, sqlite3"], check=True)
    return time.perf_counter() - began


def lines() -> list[Line]:
    return [
        *spine(),
        *telegram(),
        *discord(),
        *slack(),
        *api(),
        *assistant(),
        *board(),
        *people(),
        *fence(),
        *approvals(),
        *fairness(),
        *standstill(),
    ]


def spine() -> list[Line]:
    echo, bare = measure("echo"), measure("bare")
    crowd, bare_crowd = measure("crowd"), measure("bare_crowd")
    idle, restart = measure("idle_memory"), measure("restart")
    cpu, wall = start_to_ready(DEMO)
    return [
        Line("CPU per echo turn, 100 conversations", echo["cpu_ms_per_turn"], bare["cpu_ms_per_turn"], "≤ 2", "ms"),
        Line("turns per second, FULL durability", echo["turns_per_second"], bare["turns_per_second"], "≥ 500", "/s"),
        Line("10,000 conversations, agent takes 2 s", crowd["seconds"], bare_crowd["seconds"], "≤ 25", "s"),
        Line("  memory of that", crowd["rss_mb"], bare_crowd["rss_mb"], "≤ 400", "MB"),
        Line("memory after 10,000 conversations", idle["rss_mb"], None, "", "MB"),
        Line("first send after restart, 10,000 open rows", restart["seconds"], None, "≤ 5", "s"),
        Line("start to ready, CPU", cpu, bare_start(), "≤ 0.8", "s"),
        Line("start to ready, wall clock", wall, None, "≤ 2", "s"),
    ]


def fence() -> list[Line]:
    """Beside the same command without a fence."""
    figures = _measure("fence", "tests.bench.fence")
    local = figures.pop("local")["cpu_ms"]
    return [
        Line(f"start of a command behind {name}, CPU", used["cpu_ms"], local, "≤ local + 10", "ms")
        for name, used in figures.items()
    ]


def telegram() -> list[Line]:
    """Beside the stock library's echo handler."""
    return _beside_stock("telegram", ("Telegram: message to its answer", "p50_ms", "≤ 2 × stock"), cpu="≤ 2 × stock")


def discord() -> list[Line]:
    """Beside the stock library's echo client, which stores nothing."""
    return _beside_stock("discord", ("Discord: message to its answer", "p50_ms", ""))


def slack() -> list[Line]:
    """Beside Bolt's echo app, which confirms before it does anything, and stores nothing."""
    confirmed = ("Slack: event to its confirmation", "ack_ms", "≤ 3,000")
    return _beside_stock("slack", confirmed, ("  event to the first post", "p50_ms", ""))


def _beside_stock(name: str, *delays: tuple[str, str, str], cpu: str = "") -> list[Line]:
    """One line for each delay, by its title, its figure and its goal, and one for the CPU of an answer."""
    figures = _measure(name, f"tests.bench.{name}")
    ours, stock = figures["tidings"], figures["stock"]
    lines = [Line(f"{title}, p50", ours[figure], stock[figure], goal, "ms") for title, figure, goal in delays]
    return [*lines, Line("  CPU of that", ours["cpu_ms"], stock["cpu_ms"], cpu, "ms")]


def api() -> list[Line]:
    """Beside a bare aiohttp handler that stores nothing, and one that stores the same rows as we do."""

    def figures(name: str) -> dict[str, float]:
        found: dict[str, float] = _measure(f"api {name}", "tests.bench.api", f"api_{name}")
        return found

    ours, bare, durable = figures("tidings"), figures("bare"), figures("durable")
    delta, many, readers = figures("first_delta"), figures("conversations"), figures("idle_readers")
    start = figures("start")
    return [
        Line(
            "API: CPU per request, 16 clients", ours["cpu_ms_16"], bare["cpu_ms_16"], "≤ 2", "ms", durable["cpu_ms_16"]
        ),
        *(
            Line(
                f"  requests per second, {clients} client{'s' if clients > 1 else ''}",
                ours[f"rps_{clients}"],
                bare[f"rps_{clients}"],
                "≥ half of storing",
                "/s",
                durable[f"rps_{clients}"],
            )
            for clients in (1, 16, 64)
        ),
        Line("  first delta after the agent's, p50", delta["p50_ms"], None, "≤ 5", "ms"),
        Line("  200 conversations, agent takes 2 s", many["seconds"], None, "≤ 3", "s"),
        Line("  10,000 idle event readers", readers["readers_mb"], None, "≤ 200", "MB"),
        Line("  start to healthy", start["seconds"], None, "≤ 0.8", "s"),
        Line("  memory when idle", start["rss_mb"], None, "≤ 80", "MB"),
    ]


def assistant() -> list[Line]:
    """Beside the provider's own library, which remembers nothing, stores nothing and tells nobody.

    What /health takes is beside an idle gateway.
    """

    def figures(name: str) -> tuple[dict[str, float], dict[str, float]]:
        ours, bare = (
            _measure(f"assistant {name} {side}", "tests.bench.assistant", name, side) for side in ("tidings", "bare")
        )
        return ours, bare

    (turns, bare_turns), (streams, bare_streams), (talk, _) = map(figures, ("turns", "streams", "talk"))
    health = _measure("health", "tests.bench.health")
    cpu, wall = start_to_ready(MODEL)
    plain_cpu, plain_wall = start_to_ready(DEMO)
    token, bare_token = turns["cpu_us_per_token"], bare_turns["cpu_us_per_token"]
    return [
        Line("Assistant: CPU per turn", turns["cpu_ms_per_turn"], bare_turns["cpu_ms_per_turn"], "≤ 20", "ms"),
        Line("  CPU per streamed token", token, bare_token, "", "µs"),
        Line("  CPU per turn, hundredth turn of a talk", talk["cpu_ms_per_turn"], None, "", "ms"),
        Line("  50 streams at 50 tokens/s, 500 each", streams["seconds"], bare_streams["seconds"], "", "s"),
        Line("  CPU of that, share of a core", streams["cpu_share"], bare_streams["cpu_share"], "", "%"),
        Line("  /health while 100 turns begin, p50", health["p50_ms"], health["idle_p50_ms"], "", "ms"),
        Line("  /health while 100 turns begin, worst", health["worst_ms"], health["idle_worst_ms"], "≤ 100", "ms"),
        Line("  start to ready with a model, CPU", cpu, plain_cpu, "as without", "s"),
        Line("  start to ready with a model, wall clock", wall, plain_wall, "as without", "s"),
    ]


def board() -> list[Line]:
    figures = _measure("board", "tests.bench.board")
    return [
        Line("Board: listing, 10,000 cards", figures["list"], None, "≤ 50", "ms"),
        Line("  claiming four of them", figures["claim"], None, "≤ 50", "ms"),
        Line("  completing one", figures["complete"], None, "≤ 50", "ms"),
    ]


def people() -> list[Line]:
    """Beside a gateway that has hardly anybody stored."""
    many, few = (_measure(f"people {number}", "tests.bench.people", str(number)) for number in (100_000, 10))
    return [
        Line("People: admitting one, 100,000 stored", many["admit_ms"], few["admit_ms"], "≤ 50", "ms"),
        Line("  longest standstill of that", many["longest_ms"], few["longest_ms"], "≤ 50", "ms"),
    ]


def approvals() -> list[Line]:
    """Beside a gateway with one question, and one with none."""
    found = _measure("approvals", "tests.bench.approvals")
    return [
        Line("Approvals: memory of each of 10,000", found["kb_each"], None, "flat", "kB"),
        Line("  tasks while they wait", found["tasks"], found["none_tasks"], "as without", ""),
        Line("  timers while they wait", found["timers"], found["none_timers"], "as without", ""),
        Line("  start with them", found["start_s"], found["none_start_s"], "≤ 1 more", "s"),
        Line("  one sweep with them", found["sweep_ms"], found["none_sweep_ms"], "", "ms"),
        Line("  one answer", found["answer_ms"], None, "≤ 50", "ms"),
        Line("  one person removed", found["remove_s"], None, "", "s"),
        Line("  longest standstill of that", found["remove_standstill_ms"], None, "≤ 100", "ms"),
    ]


def fairness() -> list[Line]:
    """Beside the same newcomers with an empty queue, and beside a short line; a run takes 500 ms."""
    found = _measure("fairness", "tests.bench.fairness")
    empty, short, long = found.pop("empty queue"), found.pop("line of 1000"), found.pop("line of 20000")
    return [
        *(
            Line(f"Newcomer beside {kind}, worst wait", each["max_ms"], empty["max_ms"], "≤ empty + 500", "ms")
            for kind, each in found.items()
        ),
        Line("  one pick, 20,000 conversations wait", long["pick_us"], short["pick_us"], "as with 1,000", "µs"),
        Line("  memory of each of them", long["kb_each"], short["kb_each"], "", "kB"),
    ]


def standstill() -> list[Line]:
    figures = _measure("standstill", "tests.bench.standstill")
    return [
        Line(f"Longest standstill, {int(characters):,} characters, {name}", each["longest_ms"], None, "≤ 100", "ms")
        for name, lengths in figures.items()
        for characters, each in lengths.items()
    ]


def main() -> None:
    print(f"{'':44}{'tidings':>12}{'bare':>12}{'storing':>12}   goal")
    for line in lines():
        beside = ("" if figure is None else f"{figure:.2f}" for figure in (line.baseline, line.storing))
        bare, storing = beside
        print(f"{line.what:44}{line.figure:12.2f}{bare:>12}{storing:>12}   {line.goal} {line.unit}")


if __name__ == "__main__":
    main()
