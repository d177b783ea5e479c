"""The levers of the Discord simulator: what goes wrong, when, and for which calls and sockets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.simulators.discord.faults import Fault, Faults, banned, failed, limited
from tests.simulators.discord.gateway import HEARTBEAT, INVALID, RECONNECT, Gateway
from tests.simulators.discord.places import PRIVILEGED, Channel, Places, Where
from tests.simulators.discord.rates import Rates
from tests.simulators.discord.switchboard import Switchboard
from tests.simulators.discord.truth import Truth
from tests.simulators.shared.faults import Action
from tests.simulators.shared.levers import HttpLevers

MESSAGES = {401: "401: Unauthorized", 403: "Missing Permissions", 404: "404: Not Found"}


class Levers(HttpLevers):
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

    def heal(self) -> None:
        super().heal()
        self.gateway.acks, self.gateway.refuses = True, False

    def _fault(self, action: Action, *, channel: Where | None = None, **fields: Any) -> Fault:
        return Fault(action=action, channel=_id(channel), **fields)

    def hide_date(self) -> None:
        """Answers have no date any more, as behind a proxy that takes it away."""
        self._switchboard.tells_date = False

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
