"""Every method of the Web API that the simulator has, and who may call it."""

from __future__ import annotations

from typing import Any

from tests.simulators.slack.files import Shelf
from tests.simulators.slack.history import History
from tests.simulators.slack.messages import Messages, Method
from tests.simulators.slack.places import App, Team
from tests.simulators.slack.rates import Rates
from tests.simulators.slack.sockets import Sockets
from tests.simulators.slack.streams import Streams
from tests.simulators.slack.texts import Refusal

CONNECT = "apps.connections.open"
# Any of these scopes will do; what needs one that depends on the channel asks for it there.
NEEDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            *("chat.postMessage", "chat.update", "chat.delete", "chat.postEphemeral"),
            *("chat.startStream", "chat.appendStream", "chat.stopStream", "agents.sessions.setStatus"),
            "agents.sessions.rename",
        ),
        ("chat:write",),
    ),
    "assistant.threads.setStatus": ("assistant:write", "chat:write"),
}
# These take no JSON: its fields are as good as absent.
FORM_ONLY = {"files.getUploadURLExternal", "users.info", "conversations.info"}
# What the platform has and this simulator has not.
UNSIMULATED = {
    *("api.test", "bots.info", "chat.scheduleMessage", "chat.meMessage", "chat.unfurl", "conversations.create"),
    *("conversations.invite", "conversations.leave", "conversations.mark", "conversations.close", "emoji.list"),
    *("files.delete", "files.list", "files.upload", "pins.add", "reactions.get", "search.messages", "team.info"),
    *("users.list", "users.lookupByEmail", "users.conversations", "views.open", "views.publish", "views.update"),
    *("auth.revoke", "oauth.v2.access", "bookmarks.add", "canvases.create"),
}


class Calls:
    def __init__(
        self, sockets: Sockets, messages: Messages, streams: Streams, history: History, shelf: Shelf, rates: Rates
    ) -> None:
        self.messages = messages
        self.shelf = shelf
        self.history = history
        self._sockets = sockets
        self._rates = rates
        self.apps: dict[str, App] = {}
        self.teams: dict[str, Team] = {}
        # Tokens that were good once, and the error that tells so.
        self.dead: dict[str, str] = {}
        # Where sockets are opened.
        self.socket_url = ""
        self.methods: dict[str, Method] = {
            "auth.test": _identify,
            **messages.methods,
            **streams.methods,
            **history.methods,
            **shelf.methods,
        }

    def team(self, token: str) -> Team | None:
        """The workspace that a token is good for."""
        return next((team for team in self.teams.values() if team.token == token and not team.token_error), None)

    def perform(self, method: str, token: str, params: dict[str, Any], *, is_json: bool = False) -> dict[str, Any]:
        if method not in self.methods and method != CONNECT:
            # Loudly, lest somebody takes it for the platform's word.
            if method in UNSIMULATED:
                raise Refusal(f"the simulator has no {method}", status=501)
            raise Refusal("unknown_method", req_method=method)
        if not token:
            raise Refusal("not_authed")
        if method == CONNECT:
            return self._connect(token)
        team = self._authorize(token)
        needed = NEEDS.get(method, ())
        if needed and not set(needed) & set(team.scopes):
            team.need(needed[0])
        self._rates.admit(method, team.name, team.known_direct(str(params.get("channel", ""))))
        return self.methods[method](team, {} if is_json and method in FORM_ONLY else params)

    def _authorize(self, token: str) -> Team:
        if token in self.dead:
            raise Refusal(self.dead[token])
        team = next((team for team in self.teams.values() if team.token == token), None)
        if team is None:
            is_app = any(app.token == token for app in self.apps.values())
            raise Refusal("not_allowed_token_type" if is_app else "invalid_auth")
        if team.token_error:
            raise Refusal(team.token_error)
        return team

    def _connect(self, token: str) -> dict[str, Any]:
        if token in self.dead:
            raise Refusal(self.dead[token])
        app = next((app for app in self.apps.values() if app.token == token), None)
        if app is None:
            is_bot = any(team.token == token for team in self.teams.values())
            raise Refusal("not_allowed_token_type" if is_bot else "invalid_auth")
        self._rates.admit(CONNECT, app.name, "")
        return {"url": f"{self.socket_url}/link/?ticket={self._sockets.issue(app)}&app_id={app.id}"}


def _identify(team: Team, params: dict[str, Any]) -> dict[str, Any]:
    return {
        "url": f"https://{team.domain}.slack.com/",
        "team": team.name,
        "user": team.bot.name,
        "team_id": team.id,
        "user_id": team.bot.id,
        "bot_id": team.bot_id,
        "is_enterprise_install": False,
    }
