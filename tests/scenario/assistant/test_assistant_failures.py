"""The table of the assistant's failures: whatever a provider does, each surface tells the same truth, once.

Each row is one thing that a provider does. It is done to every dialect, streamed and not, and each time four people
ask: one at the console, one who waits for a completion, one who reads its stream, one who watches a run.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.simulators.provider.simulator import KEY, MODEL, Call, ProviderServer, Say
from tests.simulators.provider.truth import Api
from tests.worlds.api import ApiWorld
from tests.worlds.assistant import APIS, settings_for
from tidings.adapters.local import socket
from tidings.bots.assistant.agent import Assistant

ANSWER = "one two three four"
HALF = "one two"
RETRIES = 1
# Where a row is about silence, silence is noticed soon; elsewhere a busy machine must not be taken for it.
SILENCE_SECONDS = 1.0
STALL_SECONDS = 20.0
PATIENCE_SECONDS = 30.0

REFUSED = "the model's provider refused the request (HTTP {status})"
KEYLESS = "the model's provider does not accept the key of this bot (HTTP {status})"
TROUBLE = "the model's provider has trouble of its own (HTTP {status})"
HUNG_UP = "the model's provider cannot be reached, or hung up"
SILENT = "the model's provider has gone silent"
NONSENSE = "the model's provider sent something that is no answer"
ENDLESS = "the model's answer stopped without an end"
FILTERED = "the model's provider withheld the answer because of its content"
EMPTY = "the model gave an empty answer"
TOO_LONG = "the answer reached the longest that the model may write"
BROKE_OFF = "the answer broke off: "
LASTING = (
    "refused the request",
    "does not accept the key",
    "has no credit",
    "knows no model",
    "too long for",
    "used up its length limit",
    FILTERED,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What a provider does, and what must come of it where the bot streams and where it does not."""

    arm: Callable[[ProviderServer], object]
    # The reason of a failure; the answer is whole where there is none.
    why: str = ""
    # What was said before it failed, of an answer that is streamed.
    said: str = ""
    # How often the provider is asked for one answer, streamed and whole.
    asked: tuple[int, int] = (1, 1)
    # Instead of `why`, where these differ.
    unstreamed: str = ""
    by_api: tuple[tuple[Api, bool, str], ...] = ()
    halted: bool = False
    # Where others would only show the same again.
    apis: tuple[Api, ...] = APIS
    turn: Say | Call = Say(ANSWER)
    # Armed for each who asks, one after the other.
    once: bool = False
    # How long the bot bears silence.
    stall_seconds: float = STALL_SECONDS
    disarm: Callable[[ProviderServer], object] = ProviderServer.heal

    def reason(self, api: Api, stream: bool) -> str:
        for which, streamed, reason in self.by_api:
            if (which, streamed) == (api, stream):
                return reason
        return self.why if stream or not self.unstreamed else self.unstreamed


AGAIN = (1 + RETRIES, 1 + RETRIES)
# Without a stream nobody has seen a word of it, so it may be asked for again.
AGAIN_IF_WHOLE = (1, 1 + RETRIES)


def status(code: int, why: str, asked: tuple[int, int] = (1, 1), apis: tuple[Api, ...] = APIS) -> Row:
    return Row(arm=lambda it: it.fail_next(code, None), why=why.format(status=code), asked=asked, apis=apis)


def silent(why: str, said: str = "", after: int | None = None) -> Row:
    return Row(
        arm=lambda it: it.stall_next(None, after_chunks=after),
        why=why,
        said=said,
        asked=AGAIN_IF_WHOLE if said else AGAIN,
        unstreamed=SILENT,
        stall_seconds=SILENCE_SECONDS,
    )


def error_inside(after: int, said: str, prefix: str, *, failed: bool = False) -> Row:
    """A dialect that names no status for it has one made of its words, or none."""
    overloaded = prefix + TROUBLE.format(status=529)
    without = TROUBLE.partition(" (")[0]
    return Row(
        arm=lambda it: it.error_next(after, None, failed=failed),
        # Only there are two ways to say it.
        apis=("responses",) if failed else APIS,
        why=prefix + TROUBLE.format(status=503),
        said=said,
        asked=AGAIN_IF_WHOLE if said else AGAIN,
        by_api=(
            ("chat", False, NONSENSE),
            ("responses", False, without),
            ("messages", True, overloaded),
            ("messages", False, TROUBLE.format(status=529)),
        ),
    )


def narrow(provider: ProviderServer) -> None:
    provider.window = 3


def widen(provider: ProviderServer) -> None:
    provider.window = None


ROWS: dict[str, Row] = {
    "400": status(400, REFUSED),
    "401": status(401, KEYLESS),
    "402": status(402, "the account at the model's provider has no credit left (HTTP {status})"),
    "403": status(403, KEYLESS),
    "404": status(404, f"the model's provider knows no model called {MODEL} (HTTP {{status}})"),
    "429 for ever": status(429, "the model's provider takes no more requests for now (HTTP {status})", AGAIN),
    "429 once": Row(arm=lambda it: it.fail_next(429), asked=(2, 2), once=True),
    "500": status(500, TROUBLE, AGAIN, ("chat",)),
    "502 with a page": status(502, TROUBLE, AGAIN),
    "503": status(503, TROUBLE, AGAIN, ("chat",)),
    "529": status(529, TROUBLE, AGAIN),
    "nobody listens": Row(
        arm=lambda it: it.outage(True), why=HUNG_UP, asked=(0, 0), disarm=lambda it: it.outage(False)
    ),
    "cut before a byte": Row(arm=lambda it: it.cut_next(None), why=HUNG_UP, asked=AGAIN),
    "cut after text": Row(
        arm=lambda it: it.cut_next(None, after_chunks=2),
        why=BROKE_OFF + HUNG_UP,
        said=HALF,
        asked=AGAIN_IF_WHOLE,
        unstreamed=HUNG_UP,
    ),
    "cut in a call": Row(
        arm=lambda it: it.cut_next(None, after_chunks=1), why=HUNG_UP, asked=AGAIN, turn=Call("time", {"zone": "UTC"})
    ),
    "end in a call": Row(
        arm=lambda it: it.end_next(1, None), why=ENDLESS, asked=AGAIN, turn=Call("time", {"zone": "UTC"})
    ),
    "silent before a byte": silent(SILENT),
    "silent before text": silent(SILENT, after=0),
    "silent after text": silent(BROKE_OFF + SILENT, HALF, 2),
    "garbled before text": Row(arm=lambda it: it.garble_next(0, None), why=NONSENSE, asked=AGAIN),
    "garbled after text": Row(
        arm=lambda it: it.garble_next(2, None),
        why=BROKE_OFF + NONSENSE,
        said=HALF,
        asked=AGAIN_IF_WHOLE,
        unstreamed=NONSENSE,
    ),
    "error before text": error_inside(0, "", ""),
    "error after text": error_inside(2, HALF, BROKE_OFF),
    "failed before text": error_inside(0, "", "", failed=True),
    "failed after text": error_inside(2, HALF, BROKE_OFF, failed=True),
    "no body": Row(arm=lambda it: it.end_next(None, None, after_bytes=0), why=NONSENSE, asked=AGAIN),
    "end before text": Row(arm=lambda it: it.end_next(0, None), why=ENDLESS, asked=AGAIN),
    "end after text": Row(
        arm=lambda it: it.end_next(2, None),
        why=BROKE_OFF + ENDLESS,
        said=HALF,
        asked=AGAIN_IF_WHOLE,
        unstreamed=ENDLESS,
    ),
    "all but a finish reason": Row(
        arm=lambda it: it.unfinish_next(None),
        why=BROKE_OFF + ENDLESS,
        said=ANSWER,
        asked=AGAIN_IF_WHOLE,
        unstreamed=ENDLESS,
    ),
    "empty once": Row(arm=lambda it: it.empty_next(), asked=(2, 2), once=True),
    "empty for ever": Row(arm=lambda it: it.empty_next(None), why=EMPTY, asked=(2, 2)),
    "too long": Row(arm=lambda it: it.truncate_next(2, None), why=TOO_LONG, halted=True),
    "too long before text": Row(
        arm=lambda it: it.truncate_next(0, None), why="the model used up its length limit before it said anything"
    ),
    "filtered before text": Row(arm=lambda it: it.filter_next(0, None), why=FILTERED),
    "filtered after text": Row(
        arm=lambda it: it.filter_next(2, None), why=BROKE_OFF + FILTERED, said=HALF, unstreamed=FILTERED
    ),
    # There is nothing that could be left out of one short question.
    "window": Row(arm=narrow, why="this talk has become too long for {model} (HTTP 400)", disarm=widen),
    # The last, for it is remembered.
    "cannot stream": Row(arm=lambda it: it.refuse_streams(), once=True),
}


class Told(NamedTuple):
    """What one surface has told of an answer; all four must tell the same."""

    # "completed", "halted" or "failed".
    outcome: str
    text: str
    reason: str


async def ask_console(api: ApiWorld, row: str) -> Told:
    """Sits down, asks, shows whatever comes, and reads the screen when nothing is owed any more."""
    screen: dict[str, str] = {}
    kinds: list[str] = []
    outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def read(line: socket.SocketLine) -> None:
        while (heard := await line.read()) is not None:
            if "part" in heard:
                screen[heard["view"] or heard["part"]] = heard["text"]
                kinds.append(heard["kind"])
                await line.write({"shown": heard["part"]})
            elif "show" in heard:
                screen[heard["show"]] = heard["text"]
            elif "ended" in heard:
                outcome.set_result(heard["outcome"])

    async with socket.connect(api.home) as line:
        await line.write({"verb": "chat", "chat": "", "thread": row})
        reading = asyncio.create_task(read(line))
        await line.write({"say": "hello", "key": row})
        kind = await outcome
        await api.settled()
        reading.cancel()
        await asyncio.wait([reading])
    assert len(screen) == 1, f"one message and no other: {screen}"
    assert kinds.count("plain") == 1, f"it is whole once: {kinds}"
    (shown,) = screen.values()
    text, mark, why = shown.partition("⚠ I could not finish this: ")
    assert (kind == "failed") == bool(mark), shown
    assert why.count("\n") == 0
    return Told(kind, text.rstrip() if mark else text, why.removesuffix("."))


def question(**more: Any) -> dict[str, Any]:
    return {"model": "bot", "messages": [{"role": "user", "content": "hello"}], **more}


async def ask_completion(api: ApiWorld, row: str) -> Told:
    answer = await api.http.post("/v1/chat/completions", json=question())
    body = answer.json()
    if answer.status_code != 200:
        # A client that asks again is helped where the provider may have got over it, and only there.
        status = 424 if any(words in body["error"]["message"] for words in LASTING) else 502
        assert (answer.status_code, body["error"]["code"]) == (status, "agent_failed"), body
        return Told("failed", "", body["error"]["message"])
    (choice,) = body["choices"]
    outcome = {"stop": "completed", "length": "halted"}[choice["finish_reason"]]
    return Told(outcome, choice["message"]["content"], body.get("incomplete", {}).get("reason", ""))


async def ask_stream(api: ApiWorld, row: str) -> Told:
    async with api.http.stream("POST", "/v1/chat/completions", json=question(stream=True)) as response:
        assert response.status_code == 200
        *frames, done = [frame async for frame in api.frames(response)]
    assert done.data == "[DONE]"
    assert [frame for frame in frames if frame.data == "[DONE]"] == []
    chunks = [frame.json for frame in frames]
    errors = [chunks.pop(place) for place in range(len(chunks) - 1, -1, -1) if "choices" not in chunks[place]]
    text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)
    ends = [place for place, chunk in enumerate(chunks) if chunk["choices"][0]["finish_reason"]]
    assert ends == [len(chunks) - 1], "one terminal chunk, and it is the last"
    outcome = {"stop": "completed", "length": "halted", "error": "failed"}[chunks[-1]["choices"][0]["finish_reason"]]
    assert len(errors) == (outcome == "failed")
    return Told(outcome, text, errors[0]["error"]["message"] if errors else "")


async def ask_run(api: ApiWorld, row: str) -> Told:
    begun = await api.http.post("/v1/runs", json={"input": "hello"})
    assert begun.status_code == 202
    run = begun.json()["run_id"]
    events = [frame.json for frame in await api.watch(run)]
    ends = [place for place, event in enumerate(events) if event["event"] in ("run.completed", "run.failed")]
    assert ends == [len(events) - 1], f"one terminal event, and it is the last: {events}"
    last, said = events[-1], "".join(event["delta"] for event in events if event["event"] == "message.delta")
    assert last["output"] == said
    status = (await api.http.get(f"/v1/runs/{run}")).json()
    assert (status["last_event"], status["output"], status.get("error")) == (last["event"], said, last.get("error"))
    if last["event"] == "run.failed":
        assert "incomplete" not in last
        return Told("failed", said, last["error"])
    return Told("halted" if "incomplete" in last else "completed", said, last.get("incomplete", {}).get("reason", ""))


SURFACES: tuple[Callable[[ApiWorld, str], Awaitable[Told]], ...] = (ask_console, ask_completion, ask_stream, ask_run)


def expected(row: Row, api: Api, stream: bool, ask: object) -> Told:
    reason = row.reason(api, stream).replace("{model}", model_of(api))
    if row.halted:
        text = f"{HALF}\n\n(I stopped here: {TOO_LONG}.)"
        # The text says why, and here nothing else does.
        return Told("halted", text, "" if ask in (ask_console, ask_stream) else reason)
    if not reason:
        return Told("completed", ANSWER, "")
    # Who waits for a whole completion gets an error instead of half of one.
    return Told("failed", row.said if stream and ask is not ask_completion else "", reason)


def model_of(api: Api) -> str:
    return f"{ {'chat': 'openai-chat', 'responses': 'openai-responses', 'messages': 'anthropic'}[api] }:{MODEL}"


async def without_waiting(seconds: float) -> None:
    await asyncio.sleep(0)


@asynccontextmanager
async def table(
    home: Path, api: Api, stream: bool, stall_seconds: float
) -> AsyncIterator[tuple[ApiWorld, ProviderServer]]:
    async with ProviderServer() as provider:
        settings = settings_for(
            provider,
            api,
            stream=stream,
            retries=RETRIES,
            stall_seconds=stall_seconds,
            read_seconds=stall_seconds,
            tools=("time",),
        )
        async with ApiWorld(home, Assistant("Tide", settings, sleep=without_waiting), console=True) as world:
            yield world, provider


async def play(world: ApiWorld, provider: ProviderServer, row: Row, name: str) -> tuple[list[Told], int]:
    """What each surface told, and how often the provider was asked for all of them."""
    before = len(provider.requests)
    provider.script(then=row.turn)
    told: list[Told] = []
    if not row.once:
        await pull(row.arm, provider)
        told += await asyncio.gather(*(ask(world, name) for ask in SURFACES))
    for ask in SURFACES if row.once else ():
        await pull(row.arm, provider)
        told.append(await ask(world, name))
        await pull(row.disarm, provider)
    asked = len(provider.requests) - before
    await pull(row.disarm, provider)
    return told, asked


async def pull(lever: Callable[[ProviderServer], object], provider: ProviderServer) -> None:
    done = lever(provider)
    if inspect.isawaitable(done):
        await done


@pytest.mark.parametrize("stall_seconds", [STALL_SECONDS, SILENCE_SECONDS], ids=["spoken", "silent"])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("api", APIS)
async def test_every_failure_is_told_once_and_truly_on_every_surface(
    tmp_path: Path, api: Api, stream: bool, stall_seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    """A1, A2, A3: never completed for a failure, what was said stays, and the reason is one plain sentence."""
    wrong: list[str] = []
    rows = {name: row for name, row in ROWS.items() if api in row.apis and row.stall_seconds == stall_seconds}
    async with table(tmp_path, api, stream, stall_seconds) as (world, provider):
        for name, row in rows.items():
            async with asyncio.timeout(PATIENCE_SECONDS):
                told, asked = await play(world, provider, row, name)
            for ask, heard in zip(SURFACES, told, strict=True):
                if heard != (wanted := expected(row, api, stream, ask)):
                    wrong.append(f"{name}, {ask.__name__}: {heard} instead of {wanted}")
            # A refusal to stream is met once and then remembered.
            wanted_asks = len(SURFACES) + stream if name == "cannot stream" else len(SURFACES) * row.asked[not stream]
            if asked != wanted_asks:
                wrong.append(f"{name}: asked {asked} times instead of {wanted_asks}")
        journal = b"".join(row["event"] for row in world.rows("SELECT event FROM journal"))
    assert wrong == [], "\n".join(wrong)
    assert KEY.encode() not in journal
    assert KEY not in caplog.text
