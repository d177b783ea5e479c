"""The levers of the Slack simulator: what goes wrong, when, and for which calls and sockets."""

from __future__ import annotations

from tests.simulators.shared.levers import HttpLevers
from tests.simulators.slack.board import Board
from tests.simulators.slack.calls import Calls
from tests.simulators.slack.faults import HTML, Fault, Faults
from tests.simulators.slack.feed import Feeds
from tests.simulators.slack.history import HISTORY_LIMIT
from tests.simulators.slack.places import App, Channel, Team
from tests.simulators.slack.rates import Rates
from tests.simulators.slack.sockets import Socket, Sockets
from tests.simulators.slack.switchboard import Switchboard
from tests.simulators.slack.truth import Message, Truth

# What history gives to apps that are sold outside the marketplace.
SOLD_OBJECTS = 15
SOLD_SECONDS = 60.0


class Levers(HttpLevers):
    """A method is any of the Web API unless it is named; a channel is any unless its id is named."""

    truth: Truth
    faults: Faults
    rates: Rates
    board: Board
    calls_of: Calls
    feeds: Feeds
    sockets: Sockets
    _switchboard: Switchboard

    # Calls.

    def fail_next(
        self,
        error: str | int,
        method: str | None = None,
        count: int = 1,
        *,
        retry_after: int | None = None,
        channel: str | None = None,
        after_effect: bool = False,
        plain: bool = False,
    ) -> None:
        """An error comes with status 200; a status with HTML, or `plain` text, but 429 with the platform's own word.

        Without `after_effect` the call does nothing.
        """
        if isinstance(error, str):
            fault = Fault(action="fail", error=error, method=method, channel=channel, after_effect=after_effect)
        else:
            fault = Fault(
                action="fail",
                status=error,
                error="ratelimited" if error == 429 else str(error),
                retry_after=retry_after,
                body=b"" if error == 429 else b"upstream connect error" if plain else HTML,
                type="text/plain" if plain else "text/html",
                method=method,
                channel=channel,
                after_effect=after_effect,
            )
        self.faults.arm(fault, count)

    def limit_rates(self, on: bool = True) -> None:
        """Slack's tiers, and one message a second in each channel."""
        if on:
            self.rates.limit_as_known()
        else:
            self.rates.lift()

    def limit_rate(self, method: str, per_seconds: float, burst: int) -> None:
        self.rates.limit(method, per_seconds, burst)

    def limit_history(self, on: bool = True) -> None:
        """As for apps that are sold outside the marketplace: one call a minute, fifteen objects."""
        self.calls_of.history.most = SOLD_OBJECTS if on else HISTORY_LIMIT
        for method in ("conversations.history", "conversations.replies"):
            self.rates.limit(method, SOLD_SECONDS if on else 0.0, 1)

    # Connections and sockets.

    def hide_date(self) -> None:
        """Answers have no date any more, as behind a proxy that takes it away."""
        self._switchboard.tells_date = False

    def disconnect(self, reason: str = "refresh_requested", *, close: bool = True) -> None:
        """Tells every socket to go; one that is only warned stays open until somebody closes it."""
        for socket in list(self.sockets.open):
            socket.disconnect(reason)
            if close:
                socket.close()

    def abort_sockets(self) -> None:
        for socket in list(self.sockets.open):
            socket.abort()

    def deafen(self) -> list[Socket]:
        """Every socket that is open now stays so and swallows whatever is said."""
        for socket in self.sockets.open:
            socket.is_deaf = True
        return list(self.sockets.open)

    # What an administrator does.

    def revoke(self, team: Team, token: str = "", *, error: str = "token_revoked") -> None:
        """The token is worthless from now on; another may take its place."""
        self.calls_of.dead[team.token] = error
        team.token_error = error
        if token:
            self.calls_of.dead.pop(token, None)
            team.token, team.token_error = token, ""

    def revoke_app(self, app: App, *, error: str = "token_revoked") -> None:
        """Nobody can open a socket any more, and those that are open are told why."""
        self.calls_of.dead[app.token] = error
        self.disconnect("link_disabled")

    def drop_scope(self, team: Team, scope: str) -> None:
        team.scopes.remove(scope)

    def kick(self, team: Team, channel: Channel, on: bool = True) -> None:
        if on:
            channel.members.remove(team.bot.id)
        else:
            channel.members.append(team.bot.id)

    def archive(self, channel: Channel, on: bool = True) -> None:
        channel.is_archived = on

    def erase(self, message: Message) -> None:
        """Somebody removes a message, and no app is told."""
        self.board.remove(
            self.calls_of.teams[message.account], self.truth.messages[message.channel, message.ts], silent=True
        )

    def expire_streams(self, *, idle_seconds: float | None = None) -> None:
        """Ends every stream that is open now; with `idle_seconds`, instead, all later ones that fall silent."""
        if idle_seconds is not None:
            self.board.idle_seconds = idle_seconds
            return
        for key, message in list(self.truth.messages.items()):
            if message.streaming:
                self.board.expire(self.calls_of.teams[message.account], key)

    def redeliver(self, name: str) -> None:
        """Tells all events about the same thing again, under their old ids, confirmed or not."""
        found = [(app, each) for app, each in self.feeds.happenings if each.name == name]
        if not found:
            raise LookupError(f"nothing was ever told of {name}")
        for app, happening in found:
            self.feeds.again(app, happening)
