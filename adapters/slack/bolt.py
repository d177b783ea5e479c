"""The Bolt app of one account: its listeners store what Slack sends, and Bolt acknowledges only after that."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from slack_bolt.async_app import AsyncAck, AsyncApp, AsyncBoltContext, AsyncBoltRequest
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.error import BoltUnhandledRequestError
from slack_bolt.response import BoltResponse
from slack_sdk.socket_mode.request import SocketModeRequest

from tidings.adapters.slack.workspaces import Find, ids_of
from tidings.core.errors import Unstored

log = logging.getLogger(__name__)

# Bolt and slack_sdk log what people write, and report no trouble that the adapter does not report itself.
SILENT_LOGGER = logging.Logger("silent", logging.CRITICAL + 1)
EVENTS = ("assistant_thread_started", "app_home_opened", "agent_session_stopped")
ANY = re.compile("")
# Where the authorization leaves the account's listeners.
LISTENERS = "listeners"
# Where a request carries the ids of its workspaces: Bolt itself looks at one place of a payload only.
IDS = "ids"
STRANGE = (AttributeError, LookupError, TypeError, ValueError)
FORM = "application/x-www-form-urlencoded"
FIELDS = 100


class BoltApp:
    """Answers envelopes and requests. Only the status 200 acknowledges; Slack sends everything else again."""

    def __init__(self, find: Find) -> None:
        app = self._app = AsyncApp(
            # Bolt sets the level of the logger with this name, so the name must not be one of our packages.
            name="slack_bolt",
            logger=SILENT_LOGGER,
            process_before_response=True,
            raise_error_for_unhandled_request=True,
            authorize=_authorize_by(find),
            # http_events.py has checked the signature, because Bolt parses a body before it checks one.
            signing_secret="",
            request_verification_enabled=False,
            # parse.py recognizes the app's own messages.
            ignoring_self_events_enabled=False,
            attaching_function_token_enabled=False,
            # With these, an assistant_thread_started without its thread fails before any listener runs.
            attaching_conversation_kwargs_enabled=False,
        )
        app.error(_judge)
        # Not Bolt's AsyncAssistant: it acknowledges edits and deletions in a thread without any listener.
        for name in EVENTS:
            app.event(name)(_listener(name))
        app.event(ANY)(_listener("event"))
        app.command(ANY)(_listener("command"))
        app.action({"type": "block_actions", "action_id": ANY})(_listener("action"))

    async def answer_envelope(self, request: SocketModeRequest) -> BoltResponse:
        try:
            return await self._dispatch(AsyncBoltRequest(mode="socket_mode", body=request.payload))
        except STRANGE as error:
            return await _judge(error)

    async def answer_request(self, body: str, content_type: str) -> BoltResponse:
        """Gets no other headers: Slack signs none of them, and some of them make Bolt skip its listeners."""
        try:
            request = AsyncBoltRequest(body=_form_as_json(body, content_type), headers={"content-type": content_type})
            if not request.body:
                raise ValueError("it is empty")
            return await self._dispatch(request)
        except (*STRANGE, RecursionError) as error:
            log.warning("refused a request of a strange shape: %r", error)
            return BoltResponse(status=HTTPStatus.BAD_REQUEST)

    async def _dispatch(self, request: AsyncBoltRequest) -> BoltResponse:
        request.context[IDS] = list(ids_of(request.body))
        return await self._app.async_dispatch(request)


def _listener(name: str) -> Callable[..., Awaitable[None]]:
    async def listen(context: AsyncBoltContext, body: dict[str, Any], ack: AsyncAck) -> None:
        # Bolt does not authorize the news that a token was revoked; no account has to hear them.
        words = await context[LISTENERS][name](body) if LISTENERS in context else ""
        await (ack(words, response_type="ephemeral") if words else ack())

    return listen


def _authorize_by(find: Find) -> Callable[..., Awaitable[AuthorizeResult]]:
    async def authorize(context: AsyncBoltContext, team_id: str | None, enterprise_id: str | None) -> AuthorizeResult:
        """Never returns None: Bolt would acknowledge the event, and the event would be lost."""
        context[LISTENERS] = find([id for id in (*context[IDS], team_id, enterprise_id) if id])
        return AuthorizeResult(team_id=team_id, enterprise_id=enterprise_id)

    return authorize


async def _judge(error: Exception) -> BoltResponse:
    """The answer to a request whose listener, or Bolt itself, has raised."""
    match error:
        case Unstored():
            return BoltResponse(status=HTTPStatus.SERVICE_UNAVAILABLE)
        case BoltUnhandledRequestError():
            # A kind of request that no listener is registered for, such as a shortcut.
            return BoltResponse(status=HTTPStatus.OK)
        case AttributeError() | LookupError() | TypeError() | ValueError():
            log.warning("passed over a payload of a strange shape, which must not come again: %r", error)
            return BoltResponse(status=HTTPStatus.OK)
        case _:
            log.error("a listener failed, so Slack has to send the event again", exc_info=error)
            return BoltResponse(status=HTTPStatus.INTERNAL_SERVER_ERROR)


def _form_as_json(body: str, content_type: str) -> str:
    """Turns a command into JSON: Bolt reads a form with the word "payload" in it as empty, unless that is a field."""
    if content_type != FORM:
        return body
    fields = dict(parse_qsl(body, keep_blank_values=True, max_num_fields=FIELDS))
    return body if "payload" in fields else json.dumps(fields)
