"""Runs over HTTP: every event once and in order, one end, whoever comes and goes, and whatever is killed."""

from __future__ import annotations

import asyncio
import random
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.worlds.api import KEY, PATIENCE_SECONDS, ApiWorld, Frame, frames_of
from tests.worlds.api_agents import GO, appear, sign
from tests.worlds.process import end, gateway
from tests.worlds.world import Echo, Gate, Scripted, Takes
from tidings.core.agent import (
    Effect,
    FileMade,
    Finished,
    OutcomeKind,
    ReasoningDelta,
    ToolFinished,
    ToolStarted,
    Turn,
    Usage,
)
from tidings.core.types import Author

TERMINAL = ("run.completed", "run.failed", "run.cancelled")
SECRET = "sk-proj-Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MGFiY2RlZg"
PERSON, BOT, NOTICE = Author.PERSON, Author.BOT, Author.NOTICE

BUSY = Scripted(
    ReasoningDelta("hmm"),
    "Let me see. ",
    ToolStarted("one", "look", '{"at": "cellar"}', Effect.PURE),
    ToolFinished("one", "12 bottles"),
    "Naïve 😀, 漢字.\n\ndata: no frame\r\n\r\nid: 7",
    ToolStarted("two", "count", "x" * 1000, Effect.PURE),
    ToolFinished("two", error="it is broken"),
    "Done. ",
    Finished(usage=Usage(input_tokens=7, output_tokens=5)),
)
FAILURES = {
    "it raises": Scripted("I begin. ", RuntimeError(f"401: the key {SECRET} is wrong")),
    "it says so": Scripted("I begin. ", Finished(OutcomeKind.FAILED, f"402: no credit for {SECRET}")),
    "its stream is cut off": Scripted("I begin. ", finish=False),
    "it says nothing": Scripted(),
}


async def begin(api: ApiWorld, text: str = "hi", **more: Any) -> str:
    answer = await api.http.post("/v1/runs", json={"input": text, **more})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["run_id"])


def names(frames: list[Frame]) -> list[str]:
    return [frame.json["event"] for frame in frames]


def text_of(frames: list[Frame]) -> str:
    """What a reader has in the end who drops what a restart made void."""
    text = ""
    for frame in frames:
        event = frame.json
        if event["event"] == "run.restarted":
            text = ""
        elif event["event"] == "message.delta":
            text += event["delta"]
    return text


def are_whole(frames: list[Frame], run: str) -> None:
    """One terminal event, always last; ids that grow; and the deltas are the output."""
    assert [name for name in names(frames) if name in TERMINAL] == names(frames)[-1:]
    ids = [int(frame.id) for frame in frames]
    assert ids == sorted(set(ids))
    assert {frame.json["run_id"] for frame in frames} == {run}
    assert all(frame.json["timestamp"] > 0 for frame in frames)
    assert text_of(frames) == frames[-1].json["output"]


def seen(turn: Turn) -> list[tuple[Author, str]]:
    return [(entry.author, entry.text) for entry in turn.history]


# What a run tells.


async def test_a_run_tells_everything_in_order_and_then_its_end(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, BUSY) as api:
        answer = await api.http.post("/v1/runs", json={"input": "hi"})
        assert answer.status_code == 202
        run = answer.json()["run_id"]
        assert answer.json() == {"object": "run", "run_id": run, "status": "started", "replayed": False}
        frames = await api.watch(run)
        status = (await api.http.get(f"/v1/runs/{run}")).json()
    are_whole(frames, run)
    wanted = ["reasoning.delta", "message.delta", "tool.started", "tool.completed", "message.delta"]
    assert names(frames) == [*wanted, "tool.started", "tool.completed", "message.delta", "run.completed"]
    events = [frame.json for frame in frames]
    assert events[0]["delta"] == "hmm"
    assert (events[2]["tool"], events[2]["call_id"], events[2]["preview"]) == ("look", "one", '{"at": "cellar"}')
    assert (events[3]["tool"], events[3]["call_id"], events[3]["error"]) == ("look", "one", False)
    assert events[3]["duration"] >= 0
    assert len(events[5]["preview"]) < 1000, "arguments may be long"
    assert (events[6]["tool"], events[6]["error"]) == ("count", True)
    usage = {"input_tokens": 7, "output_tokens": 5, "total_tokens": 12}
    assert (events[-1]["output"], events[-1]["usage"]) == (text_of(frames), usage)
    assert (status["status"], status["last_event"], status["model"]) == ("completed", "run.completed", "bot")
    assert (status["output"], status["usage"]) == (text_of(frames), usage)
    assert status["updated_at"] >= status["created_at"] > 0


@pytest.mark.parametrize("agent", [pytest.param(agent, id=name) for name, agent in FAILURES.items()])
async def test_a_run_that_fails_has_failed_everywhere(tmp_path: Path, agent: Scripted) -> None:
    """A1, A2."""
    async with ApiWorld(tmp_path, agent) as api:
        run = await begin(api)
        frames = await api.watch(run)
        status = await api.http.get(f"/v1/runs/{run}")
    are_whole(frames, run)
    assert names(frames)[-1] == "run.failed"
    assert frames[-1].json["error"] == status.json()["error"] != ""
    assert (status.json()["status"], status.json()["last_event"]) == ("failed", "run.failed")
    assert SECRET not in status.text + "".join(frame.data for frame in frames)


async def test_a_halted_run_is_completed_but_not_whole(tmp_path: Path) -> None:
    """A2, A5."""
    guard = Finished(OutcomeKind.HALTED, "the same tool was called 20 times")
    async with ApiWorld(tmp_path, Scripted(guard)) as api:
        run = await begin(api)
        frames = await api.watch(run)
        status = (await api.http.get(f"/v1/runs/{run}")).json()
    are_whole(frames, run)
    for told in (frames[-1].json, status):
        assert told["incomplete"] == {"reason": "the same tool was called 20 times"}
        assert told["output"] == "(I stopped here: the same tool was called 20 times.)"
        assert "error" not in told
    assert (names(frames)[-1], status["status"]) == ("run.completed", "completed")


async def test_a_file_that_cannot_be_handed_over_is_named(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Scripted("Look.", FileMade("/nowhere/report.txt", "report.txt"))) as api:
        ended = await api.ended(await begin(api))
    assert (ended["output"], ended["files"]) == ("Look.", ["report.txt"])


# Who comes and goes.


class Reader:
    """Reads bytes and is cut off; comes back with the id of the last whole frame."""

    def __init__(self, api: ApiWorld, run: str) -> None:
        self.frames: list[Frame] = []
        self._api = api
        self._path = f"/v1/runs/{run}/events"

    async def read(self, most: int | None = None) -> None:
        """So many bytes, or all until the stream closes."""
        headers = {"Last-Event-ID": self.frames[-1].id} if self.frames else {}
        data = b""
        async with self._api.http.stream("GET", self._path, headers=headers) as response:
            assert response.status_code == 200
            async for chunk in response.aiter_raw():
                data += chunk
                if most is not None and len(data) >= most:
                    break
        whole = data[:most].decode(errors="ignore")
        self.frames += [frame async for frame in frames_of(_lines(whole))]


async def _lines(text: str) -> AsyncIterator[str]:
    """Without the last one, which may have been cut."""
    for line in text.split("\n")[:-1]:
        yield line


async def test_a_reader_that_is_cut_off_twenty_times_sees_everything_once(tmp_path: Path) -> None:
    """A22: at random bytes, most of them inside a frame, while the run goes on."""
    lots = random.Random(22)
    gates = [asyncio.Event() for _ in range(20)]
    steps: list[Any] = []
    for number, gate in enumerate(gates):
        steps += [f"part {number} ", ToolStarted(f"c{number}", "work", "{}", Effect.PURE)]
        steps += [ToolFinished(f"c{number}", "ok"), f"end {number} ", gate]
    async with ApiWorld(tmp_path, Scripted(*steps)) as api:
        run = await begin(api)
        reader = Reader(api, run)
        for gate in gates:
            # Less than each part of the run brings, so there is always something to be cut off from.
            await reader.read(lots.randint(1, 350))
            gate.set()
        await reader.read()
        whole = await api.watch(run)
        # Who has seen the end is told nothing more.
        await reader.read()
    are_whole(whole, run)
    assert len(whole) >= 61
    assert reader.frames == whole


async def test_two_readers_both_get_everything(tmp_path: Path) -> None:
    """A22."""
    gate = Gate()
    async with ApiWorld(tmp_path, Scripted("one ", gate, *BUSY.steps)) as api:
        run = await begin(api)
        await gate.reached()
        readers = [asyncio.create_task(api.watch(run)) for _ in range(2)]
        await api.eventually(lambda: len(api.gateway._parts.feed._readers.get(run, ())) >= 2)
        gate.open()
        first, second = await asyncio.gather(*readers)
        replayed = await api.watch(run)
    are_whole(first, run)
    assert first == second == replayed


async def test_a_reader_that_dawdles_gets_everything_all_the_same(tmp_path: Path) -> None:
    """It falls behind by more than is kept for it, and is served from the journal."""
    steps: list[Any] = []
    for number in range(300):
        # Each tool that begins is a commit of its own.
        steps += [f"{number}" + " word" * 4000, ToolStarted(f"c{number}", "work", "{}", Effect.PURE)]
        steps += [ToolFinished(f"c{number}", "y")]
    gate = Gate()
    small = [(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)]
    dawdler = httpx.AsyncClient(
        transport=httpx.AsyncHTTPTransport(socket_options=small, verify=False), timeout=PATIENCE_SECONDS
    )
    async with (
        ApiWorld(tmp_path, Scripted("begin ", gate, *steps), limits={"output_characters": 10_000_000}) as api,
        dawdler,
    ):
        run = await begin(api)
        await gate.reached()
        url, headers = f"{api.url}/v1/runs/{run}/events", {"Authorization": f"Bearer {api.key}"}
        async with dawdler.stream("GET", url, headers=headers) as response:
            frames = api.frames(response)
            first = await anext(frames)
            gate.open()
            await api.settled()
            whole = [first, *[frame async for frame in frames]]
    are_whole(whole, run)
    assert [int(frame.id) for frame in whole] == list(range(1, len(whole) + 1))


async def test_who_comes_back_is_told_what_it_missed_and_nothing_twice(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, BUSY) as api:
        run = await begin(api)
        whole = await api.watch(run)
        for seen_last in range(len(whole)):
            assert await api.watch(run, after=whole[seen_last].id) == whole[seen_last + 1 :]
        by_query = await api.http.get(f"/v1/runs/{run}/events", params={"after": whole[2].id})
        assert [frame async for frame in api.frames(by_query)] == whole[3:]
        for nonsense in ("-1", "one", "1" * 30):
            refused = await api.http.get(f"/v1/runs/{run}/events", headers={"Last-Event-ID": nonsense})
            assert refused.status_code == 400


async def test_a_run_goes_on_when_whoever_asked_and_whoever_reads_has_gone(tmp_path: Path) -> None:
    gate = Gate()
    async with ApiWorld(tmp_path, Scripted("I begin. ", gate, "I end.")) as api:
        async with api.client(api.key) as leaving:
            run = (await leaving.post("/v1/runs", json={"input": "hi"})).json()["run_id"]
            await gate.reached()
            async with leaving.stream("GET", f"/v1/runs/{run}/events") as response:
                assert (await anext(api.frames(response))).json["delta"] == "I begin. "
        assert (await api.http.get(f"/v1/runs/{run}")).json()["status"] == "running"
        gate.open()
        assert (await api.ended(run))["output"] == "I begin. I end."


# Who stops it.


async def test_a_run_is_stopped_once_and_stays_so(tmp_path: Path) -> None:
    gate = Gate()
    async with ApiWorld(tmp_path, Scripted("I begin. ", gate, "never said")) as api:
        run = await begin(api)
        await gate.reached()
        stopped = await api.http.post(f"/v1/runs/{run}/stop")
        assert (stopped.status_code, stopped.json()["status"]) == (200, "stopping")
        frames = await api.watch(run)
        again = await api.http.post(f"/v1/runs/{run}/stop")
        status = (await api.http.get(f"/v1/runs/{run}")).json()
    are_whole(frames, run)
    assert names(frames) == ["message.delta", "run.cancelled"]
    assert frames[-1].json["error"] == "stopped by owner"
    assert again.json()["status"] == status["status"] == "cancelled"


async def test_a_message_right_after_a_stop_is_answered(tmp_path: Path) -> None:
    """A6: a waiting one can be stopped, too, and the next one is not swallowed with it."""
    gate = Gate()
    agent = Echo({"first": gate})
    async with ApiWorld(tmp_path, agent) as api:
        first = await begin(api, "first", session_id="c")
        await gate.reached()
        second = await begin(api, "second", session_id="c")
        assert (await api.http.get(f"/v1/runs/{second}")).json()["status"] == "queued"
        assert (await api.http.post(f"/v1/runs/{second}/stop")).json()["status"] in ("stopping", "cancelled")
        await api.http.post(f"/v1/runs/{first}/stop")
        third = await begin(api, "third", session_id="c")
        ended = [await api.ended(run) for run in (first, second, third)]
    assert [each["status"] for each in ended] == ["cancelled", "cancelled", "completed"]
    assert ended[2]["output"] == "you said: third"
    assert agent.heard == ["first", "third"]


# Asking twice.


async def test_a_key_begins_one_run_however_often_and_whenever_it_is_used(tmp_path: Path) -> None:
    agent = Scripted("once")
    headers = {"Idempotency-Key": "k1"}
    body = {"input": "hi"}
    async with ApiWorld(tmp_path, agent) as api:
        many = await asyncio.gather(*(api.http.post("/v1/runs", json=body, headers=headers) for _ in range(5)))
        runs = {answer.json()["run_id"] for answer in many}
        assert [answer.status_code for answer in many] == [202] * 5
        assert sorted(answer.json()["replayed"] for answer in many) == [False, True, True, True, True]
        (run,) = runs
        await api.ended(run)
        await api.crash()
        await api.start()
        again = await api.http.post("/v1/runs", json=body, headers=headers)
        assert (again.status_code, again.headers["Idempotency-Replayed"]) == (202, "true")
        assert again.json() == {"object": "run", "run_id": run, "status": "completed", "replayed": True}
        other = await api.http.post("/v1/runs", json={"input": "else"}, headers=headers)
        assert (other.status_code, other.json()["error"]["code"]) == (409, "idempotency_key_conflict")
        for nonsense in ("", "x" * 256, "naïve"):
            value = nonsense.encode("latin-1")
            refused = await api.http.post("/v1/runs", json=body, headers={b"Idempotency-Key": value})
            assert refused.status_code == 400
        # It is this client's key, and nobody else's.
        async with api.client(await api.new_key("another", "runs")) as another:
            assert (await another.post("/v1/runs", json={"input": "else"}, headers=headers)).status_code == 202
    assert [turn.message.text for turn in agent.turns] == ["hi", "else"]


# What went before.


@pytest.mark.parametrize("by", ["session_id", "conversation", "X-Tidings-Conversation"])
async def test_a_named_conversation_is_remembered(tmp_path: Path, by: str) -> None:
    agent = Scripted("noted")
    async with ApiWorld(tmp_path, agent) as api:
        for text in ("one", "two"):
            body = {"input": text} if by.startswith("X-") else {"input": text, by: "home"}
            answer = await api.http.post("/v1/runs", json=body, headers={by: "home"} if by.startswith("X-") else {})
            status = await api.ended(answer.json()["run_id"])
            assert status["session_id"] == "home"
        await api.ended(await begin(api, "three"))
    assert [seen(turn) for turn in agent.turns] == [[], [(PERSON, "one"), (BOT, "noted")], []]


async def test_a_history_that_is_brought_comes_before_a_chain_and_before_memory(tmp_path: Path) -> None:
    agent = Scripted("noted")
    async with ApiWorld(tmp_path, agent) as api:
        first = await begin(api, "one", session_id="home")
        await api.ended(first)
        response = first.replace("run_", "resp_")
        brought = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "zero"},
            {"role": "tool", "content": "0"},
            {"role": "assistant", "content": "nought"},
        ]
        runs = [
            await begin(api, "two", previous_response_id=response, instructions="Be kind."),
            await begin(api, "three", session_id="home", conversation_history=brought, previous_response_id=response),
        ]
        for run in runs:
            await api.ended(run)
    by_text = {turn.message.text: turn for turn in agent.turns}
    assert seen(by_text["two"]) == [(PERSON, "one"), (BOT, "noted")]
    assert by_text["two"].message.given is not None
    assert by_text["two"].message.given.instructions == "Be kind."
    data = (NOTICE, "(The tool of the client gave this output, which is data: 0)")
    assert seen(by_text["three"]) == [(PERSON, "zero"), data, (BOT, "nought")]
    assert by_text["three"].message.given is not None
    assert by_text["three"].message.given.instructions == "Be brief."


async def test_a_foreign_run_is_as_if_it_never_was(tmp_path: Path) -> None:
    gate = Gate()
    async with ApiWorld(tmp_path, Scripted("a", gate)) as api:
        async with (
            api.client(await api.new_key("ada", "runs")) as ada,
            api.client(await api.new_key("bob", "runs")) as bob,
        ):
            run = (await ada.post("/v1/runs", json={"input": "hi"})).json()["run_id"]
            await gate.reached()
            for http, status, id in ((ada, 200, run), (api.http, 200, run), (bob, 404, run), (ada, 404, "run_0")):
                looked = await http.get(f"/v1/runs/{id}")
                assert looked.status_code == status
                if status == 404:
                    events = await http.get(f"/v1/runs/{id}/events")
                    stopped = await http.post(f"/v1/runs/{id}/stop")
                    for answer in (looked, events, stopped):
                        assert answer.status_code == 404
                        assert answer.json()["error"]["code"] == "run_not_found"
        gate.open()
        assert (await api.ended(run))["status"] == "completed"


# What is killed.


async def test_a_run_begins_again_after_a_crash_and_says_that_its_text_is_void(tmp_path: Path) -> None:
    gate = Gate()
    agent = Takes(Scripted("I begin, but ", gate), Scripted("I ", "begin ", "and end."))
    async with ApiWorld(tmp_path, agent) as api:
        run = await begin(api)
        await gate.reached()
        reader = Reader(api, run)
        await api.eventually(lambda: api.journal(run))
        async with api.http.stream("GET", f"/v1/runs/{run}/events") as response:
            reader.frames.append(await anext(api.frames(response)))
        await api.crash()
        await api.start()
        await reader.read()
        whole = await api.watch(run)
        status = (await api.http.get(f"/v1/runs/{run}")).json()
    assert reader.frames == whole
    are_whole(whole, run)
    assert names(whole)[:2] == ["message.delta", "run.restarted"]
    assert whole[1].json["attempt"] == 2
    assert (status["status"], status["output"]) == ("completed", "I begin and end.")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@asynccontextmanager
async def process(home: Path) -> AsyncIterator[tuple[Any, httpx.AsyncClient]]:
    port = str(free_port())
    running = gateway(
        home,
        TIDINGS_HTTP__PORT=port,
        TIDINGS_HTTP__KEY=KEY,
        TIDINGS_BOT__AGENT="tests.worlds.api_agents:Patient",
        TIDINGS_LIMITS__DRAIN_SECONDS="0",
    )
    url, headers = f"http://127.0.0.1:{port}", {"Authorization": f"Bearer {KEY}"}
    client = httpx.AsyncClient(base_url=url, headers=headers, trust_env=False, verify=False, timeout=PATIENCE_SECONDS)
    async with running as started, client as http:
        await _until_it_is_healthy(http)
        yield started, http


async def _until_it_is_healthy(http: httpx.AsyncClient) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                told = await http.get("/health")
            except httpx.TransportError:
                # The local socket is there before the port.
                await asyncio.sleep(0.02)
                continue
            if told.status_code == 200:
                return
            # The port is there before the API's routes, and says so until then.
            assert told.status_code == 503
            await asyncio.sleep(0.02)


async def _events(http: httpx.AsyncClient, run: str, after: str = "") -> list[Frame]:
    headers = {"Last-Event-ID": after} if after else {}
    async with http.stream("GET", f"/v1/runs/{run}/events", headers=headers) as response:
        assert response.status_code == 200
        return [frame async for frame in ApiWorld.frames(response)]


async def test_after_kill_9_every_run_has_one_end_and_its_readers_miss_nothing(tmp_path: Path) -> None:
    """One that may run again, one that waits behind it, one whose tool may not, and one whose client died with it."""
    keyed = {"Idempotency-Key": "k1"}
    async with process(tmp_path) as (running, http):
        asked = {
            "pure": {"input": "pure", "session_id": "c"},
            "behind": {"input": "behind", "session_id": "c"},
            "effect": {"input": "effect"},
        }
        runs = {}
        for name, body in asked.items():
            begun = await http.post("/v1/runs", json=body, headers=keyed if name == "pure" else {})
            runs[name] = begun.json()["run_id"]
        said = {"messages": [{"role": "user", "content": "chat"}], "stream": True}
        async with http.stream("POST", "/v1/chat/completions", json=said) as chatting:
            runs["chat"] = chatting.headers["X-Tidings-Run"]
            async with asyncio.timeout(PATIENCE_SECONDS):
                await appear(*(tmp_path / sign(name, 1) for name in ("pure", "effect", "chat")))
            async with http.stream("GET", f"/v1/runs/{runs['pure']}/events") as response:
                frames = ApiWorld.frames(response)
                read = [await anext(frames), await anext(frames)]
                assert await end(running, signal.SIGKILL) == -signal.SIGKILL
                with pytest.raises(httpx.TransportError):
                    await anext(frames)
    (tmp_path / GO).touch()
    async with process(tmp_path) as (_, http):
        rest = await _events(http, runs["pure"], after=read[-1].id)
        whole = {name: await _events(http, run) for name, run in runs.items()}
        ended = {name: (await http.get(f"/v1/runs/{run}")).json() for name, run in runs.items()}
        again = await http.post("/v1/runs", json=asked["pure"], headers=keyed)
        other = await http.post("/v1/runs", json=asked["behind"], headers=keyed)
    for name, run in runs.items():
        are_whole(whole[name], run)
    assert [*read, *rest] == whole["pure"]
    begins = ["message.delta", "tool.started"]
    ends = ["message.delta", "tool.started", "tool.completed", "message.delta", "run.completed"]
    assert names(whole["pure"]) == [*begins, "run.restarted", *ends]
    assert names(whole["behind"]) == ends
    assert names(whole["effect"]) == names(whole["chat"]) == [*begins, "run.failed"]
    assert {name: each["status"] for name, each in ended.items()} == {
        "pure": "completed",
        "behind": "completed",
        "effect": "failed",
        "chat": "failed",
    }
    assert ended["pure"]["output"] == "Attempt 2. Done."
    assert ended["behind"]["output"] == "Attempt 1. Done."
    assert "work was at work; whether it took effect is unknown" in ended["effect"]["error"]
    assert ended["chat"]["error"] == "interrupted by a restart"
    assert (again.json()["run_id"], again.json()["replayed"]) == (runs["pure"], True)
    assert other.status_code == 409


async def test_a_process_that_is_told_to_stop_breaks_its_readers_off_and_the_next_one_goes_on(tmp_path: Path) -> None:
    async with process(tmp_path) as (running, http):
        run = (await http.post("/v1/runs", json={"input": "pure"})).json()["run_id"]
        async with http.stream("GET", f"/v1/runs/{run}/events") as response:
            frames = ApiWorld.frames(response)
            read = [await anext(frames), await anext(frames)]
            running.send_signal(signal.SIGTERM)
            with pytest.raises(httpx.TransportError):
                await anext(frames)
        assert await asyncio.to_thread(running.wait, PATIENCE_SECONDS) == 0
    (tmp_path / GO).touch()
    async with process(tmp_path) as (_, http):
        rest = await _events(http, run, after=read[-1].id)
        assert [*read, *rest] == await _events(http, run)
    are_whole([*read, *rest], run)
    assert rest[-1].json["output"] == "Attempt 2. Done."
