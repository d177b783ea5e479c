"""What each client must have seen, and how often the agent was asked for it."""

from __future__ import annotations

from typing import NamedTuple

from tests.clients.agent import PLAIN, REASON, TWELVE

WRONG_KEY = "this key is unknown"
SECOND = "You said: ['tools first {client}']. I said: ['Twelve bottles.']. The tool is {known}."


class Expectation(NamedTuple):
    # What was seen, all of it or as a part.
    saw: str
    whole: bool = True
    # How often the agent runs for it: a second time would be a turn that nobody asked for.
    runs: int = 1


EXPECTED = {
    "plain": Expectation(PLAIN),
    "streamed": Expectation(PLAIN),
    "fail": Expectation(REASON, whole=False),
    "fail-streamed": Expectation(REASON, whole=False),
    "tools": Expectation(TWELVE),
    "tools-streamed": Expectation(TWELVE),
    # The first turn of two used tools, of which chat completions know nothing later.
    "second": Expectation(SECOND, runs=2),
    "wrong-key": Expectation(WRONG_KEY, whole=False, runs=0),
}


def knows_no_tools(client: str) -> bool:
    """It speaks by chat completions, which tell of tools beside the answer only, or leaves them out by itself."""
    return client.endswith((" chat", " compatible")) or client == "pydantic-ai responses"


def complaint(client: str, scenario: str, saw: str, runs: int) -> str:
    """Why this is not as it should be; empty where it is."""
    expected = EXPECTED[scenario]
    words = expected.saw.format(client=client, known="not known" if knows_no_tools(client) else "known")
    if (saw != words) if expected.whole else (words not in saw):
        return f"saw {saw[:300]!r} instead of {words!r}"
    if runs != expected.runs:
        return f"the agent was asked {runs} times instead of {expected.runs}"
    return ""


def asked_for(client: str, scenario: str) -> tuple[str, ...]:
    """The messages by which a client asks for a scenario."""
    verbs = {"second": ("tools first", "second")}.get(scenario, (scenario.replace("-streamed", " streamed"),))
    return tuple(f"{verb} {client}" for verb in verbs)
