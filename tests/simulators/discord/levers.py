"""The levers of the Discord simulator: what goes wrong, when, and for which calls and sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.simulators.discord.faults import Fault, Faults, Odds, banned, failed, limited
from tests.simulators.discord.gateway import HEARTBEAT, INVALID, RECONNECT, Gateway
from tests.simulators.discord.places import PRIVILEGED, Channel, Places, Where
from tests.simulators.discord.rates import Rates
from tests.simulators.discord.switchboard import Switchboard
from tests.simulators.discord.truth import Truth

MESSAGES = {401: "401: Unauthorized", 403: "Missing Permissions", 404: "404: Not Found"}


class Levers:
    """A method is any call to the API unless it is named, by a route's word or a pattern of verb and path."""

    faults: Faults
    rates: Rates
    places: Places
    truth: Truth
    gateway: Gateway
    _switchboard: Switchboard

    def fail_next(
        self,
        status: int,
        retry_after: float | None = None,
        method: str | None = None,
        count: int = 1,
        *,
        channel: Where | None = None,
        code: int = 0,
        message: str = "",
        via: bool = True,
        is_global: bool = False,
        headers: Mapping[str, str] | None = None,
        after_effect: bool = False,
    ) -> None:
        """Without `after_effect` the call does nothing. A 429 that does not come `via` Discord is the edge's ban."""
        if status == 429:
            fault = limited(1.0 if retry_after is None else retry_after, is_global=is_global) if via else banned()
        elif status >= 500:
            fault = failed(status)
        else:
            told = json.dumps({"message": message or MESSAGES.get(status, "Error"), "code": code}).encode()
            fault = Fault(action="fail", status=status, body=told)
        fault = replace(fault, headers={**fault.headers, **(headers or {})}, after_effect=after_effect)
        self.faults.arm(replace(fault, method=method, channel=_id(channel)), count)

    def drop_next(
        self, after_effect: bool, method: str | None = None, count: int = 1, *, channel: Where | None = None
    ) -> None:
        """The connection is reset."""
        self.faults.arm(_fault("drop", after_effect, method, channel), count)

    def hang_next(
        self, after_effect: bool, method: str | None = None, count: int = 1, *, channel: Where | None = None
    ) -> None:
        """No answer ever comes; the connection stays until the caller goes."""
        self.faults.arm(_fault("hang", after_effect, method, channel), count)

    def garble_next(self, method: str | None = None, count: int = 1, *, channel: Where | None = None) -> None:
        """The effect happens, and a 200 comes back with half of its JSON."""
        self.faults.arm(_fault("garble", True, method, channel), count)

    def truncate_next(self, method: str | None = None, count: int = 1, *, channel: Where | None = None) -> None:
        """The effect happens, and the connection ends in the middle of the body."""
        self.faults.arm(_fault("truncate", True, method, channel), count)

    def dribble_next(
        self, seconds: float, method: str | None = None, count: int = 1, *, channel: Where | None = None
    ) -> None:
        """The effect happens, and the body comes in bits over so many real seconds."""
        self.faults.arm(_fault("slow", True, method, channel, seconds), count)

    def delay_next(
        self,
        seconds: float,
        method: str | None = None,
        count: int = 1,
        *,
        channel: Where | None = None,
        after_effect: bool = True,
    ) -> None:
        self.faults.arm(_fault("delay", after_effect, method, channel, seconds), count)

    def hold_next(
        self, method: str | None = None, *, channel: Where | None = None, after_effect: bool = False
    ) -> asyncio.Event:
        """The call stays open until the returned gate is set."""
        fault = replace(_fault("hold", after_effect, method, channel), gate=asyncio.Event())
        self.faults.arm(fault)
        assert fault.gate is not None
        return fault.gate

    def schedule(self, seed: int, probabilities: Odds) -> None:
        """From now on the seed decides; `heal` ends it."""
        self.faults.schedule(seed, probabilities)

    def heal(self) -> None:
        self.faults.clear()
        self.gateway.acks, self.gateway.refuses = True, False

    def hide_date(self) -> None:
        """Answers have no date any more, as behind a proxy that takes it away."""
        self._switchboard.tells_date = False

    def cut(self) -> None:
        """Resets every connection; new ones are welcome."""
        self._switchboard.cut()

    async def outage(self, on: bool) -> None:
        """Refuses connections and cuts those that are open, until called with false."""
        await (self._switchboard.shut() if on else self._switchboard.open())

    def revoke(self, token: str = "", *, account: str = "main") -> None:
        """The bot's token is worthless from now on; another may take its place. Who listens is told at once."""
        bot = self.places.bot(account)
        self.gateway.reset_token(bot, token or f"{bot.token}-revoked")

    def switch_intent(self, name: str, on: bool, *, account: str = "main") -> None:
        """In the developer portal: presences, members or message_content."""
        bot = self.places.bot(account)
        bot.portal = bot.portal | PRIVILEGED[name] if on else bot.portal & ~PRIVILEGED[name]

    # How often.

    def limit_rate(self, method: str, limit: int, seconds: float, channel: Where | None = None) -> None:
        """A bucket for this route, in each channel or in this one alone."""
        self.rates.limit(method, limit, seconds, _id(channel))

    def limit_all(self, per_second: int) -> None:
        """Over all routes of a bot, but those of interactions."""
        self.rates.limit_all(per_second)

    def limit_rates(self, on: bool = True) -> None:
        """Limits as they were seen: five sends and five edits in five seconds, fifty calls in one."""
        if on:
            self.rates.limit_as_known()
        else:
            self.rates.lift()

    # The gateway.

    def ask_to_reconnect(self, *, account: str = "main") -> None:
        self.gateway.say(account, RECONNECT)

    def invalidate(self, *, resumable: bool = False, account: str = "main") -> None:
        """Unless it is resumable, the session is forgotten with all that it did not tell."""
        self.gateway.say(account, INVALID, resumable)
        if not resumable:
            self.gateway.forget(account)

    def close_gateway(self, code: int = 4000, *, account: str = "main") -> None:
        for link in self.gateway.of(account):
            link.close(code)

    def abort_gateway(self, *, account: str = "main") -> None:
        """The sockets are reset; calls go on."""
        self.gateway.abort(account)

    def forget_sessions(self, *, account: str = "main") -> None:
        self.gateway.forget(account)

    def mute_gateway(self, *, account: str = "main") -> None:
        """The sockets that are open stay so, and nothing comes through any more."""
        for link in self.gateway.of(account):
            link.is_dead = True

    def stop_acking(self, on: bool = True) -> None:
        self.gateway.acks = not on

    def refuse_gateway(self, on: bool = True) -> None:
        self.gateway.refuses = on

    def ask_heartbeat(self, *, account: str = "main") -> None:
        self.gateway.say(account, HEARTBEAT)


def _id(channel: Where | None) -> str | None:
    return channel.id if isinstance(channel, Channel) else None if channel is None else str(channel)


def _fault(action: Any, after_effect: bool, method: str | None, channel: Where | None, seconds: float = 0.0) -> Fault:
    return Fault(action=action, after_effect=after_effect, method=method, channel=_id(channel), seconds=seconds)
