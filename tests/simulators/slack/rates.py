"""How often an app may call: Slack's tiers for each method and workspace, and one message a second in a channel."""

from __future__ import annotations

from math import ceil

from tests.simulators.slack.texts import Refusal
from tidings.core.clock import Clock

# Calls a minute; what stands in no tier is not limited.
TIERS = {
    **dict.fromkeys(("conversations.list", "chat.startStream", "chat.stopStream"), 20),
    **dict.fromkeys(
        (
            *("chat.update", "chat.delete", "conversations.history", "conversations.replies", "conversations.info"),
            *("conversations.open", "conversations.join", "reactions.add", "reactions.remove"),
            *("agents.sessions.setStatus", "agents.sessions.rename", "apps.connections.open"),
        ),
        50,
    ),
    **dict.fromkeys(
        (
            *("chat.appendStream", "chat.postEphemeral", "conversations.members", "users.info", "files.info"),
            *("files.getUploadURLExternal", "files.completeUploadExternal"),
        ),
        100,
    ),
}
# What a tier takes at once, in calls.
BURST = 10
POST_SECONDS = 1.0
POST_BURST = 4


class Rate:
    """One call every `seconds`, `burst` at once. Who is turned away pays nothing."""

    def __init__(self, seconds: float, burst: int, clock: Clock) -> None:
        self._seconds = seconds
        self._patience = seconds * (burst - 1)
        self._clock = clock
        self._due = clock.now()

    def wait(self) -> float:
        return self._due - self._patience - self._clock.now()

    def spend(self) -> None:
        self._due = max(self._due, self._clock.now()) + self._seconds


class Rates:
    """Off until asked for."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By method, or by method and channel: seconds and burst.
        self._rules: dict[str, tuple[float, int]] = {}
        self._rates: dict[tuple[str, str], Rate] = {}

    def limit(self, method: str, seconds: float, burst: int) -> None:
        self._rules[method] = (seconds, burst)
        self._rates.clear()

    def limit_as_known(self) -> None:
        self._rules |= {method: (60 / calls, BURST) for method, calls in TIERS.items()}
        self._rules["chat.postMessage"] = (POST_SECONDS, POST_BURST)
        self._rates.clear()

    def lift(self) -> None:
        self._rules.clear()
        self._rates.clear()

    def admit(self, method: str, account: str, channel: str) -> None:
        if method not in self._rules:
            return
        scope = f"{account} {channel}" if method == "chat.postMessage" else account
        rate = self._rates.setdefault((method, scope), Rate(*self._rules[method], self._clock))
        if (wait := rate.wait()) > 1e-6:
            raise Refusal("ratelimited", status=429, retry_after=max(1, ceil(wait)))
        rate.spend()
