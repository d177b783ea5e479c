"""Who asks, and in which conversation, as the request's body and headers name them; names are separate for each key."""

from __future__ import annotations

from tidings.adapters.api.guard import Call, headers_of
from tidings.adapters.api.messages import Said
from tidings.adapters.api.models import Named

# Open WebUI's prompts for titles, tags and follow-ups begin so and quote the talk; its prompt for answers
# from documents begins the same way, but quotes no talk and is a person's message.
TASK, QUOTED_TALK = "### Task:", "<chat_history>"


def conversation_named(call: Call, said: Said, by_body: str | None) -> str | None:
    """None for a request that belongs to no conversation, such as a chat program's request for a title."""
    given = headers_of(Named, call)
    if _is_side_task(given, said):
        return None
    return by_body or given.tidings or given.hermes or given.chat or None


def person_named(call: Call, by_body: str | None = None) -> str:
    """The header wins: the chat program sets it itself, but may let its users write the body."""
    return call.user or by_body or ""


def _is_side_task(given: Named, said: Said) -> bool:
    if given.task is not None:
        return bool(given.task.strip())
    is_open_webui = given.chat or given.user
    is_alone = not said.given.history
    return bool(is_open_webui) and is_alone and said.text.lstrip().startswith(TASK) and QUOTED_TALK in said.text
