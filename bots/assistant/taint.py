"""What the model has read of others, and which addresses people named; kept as long as the model's memory is."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from yarl import URL

from tidings.bots.assistant import prompt
from tidings.bots.assistant.tools import guard
from tidings.bots.assistant.tools.question import visible
from tidings.bots.assistant.tools.tool import Tool, ToolError
from tidings.core.agent import Turn
from tidings.core.redaction import one_line
from tidings.core.types import Author, Inbound, Origin

# How many texts a question names, and how long each name may be.
MOST_SOURCES = 12
SOURCE_CHARACTERS = 80
EARLIER = "texts from earlier"
# How many addresses are kept, the newest, and how much of one message is searched for some.
MOST_ADDRESSES = 200
SEARCHED_CHARACTERS = 20_000
# What people write around an address.
_AROUND = "<>()[]{}\"'“”‘’«».,;:!?|*`"


@dataclass
class Taint:
    # Texts of others in the model's context, in words for people; empty if there are none.
    sources: list[str] = field(default_factory=list)
    # Addresses that people named themselves, as `_place` writes them.
    named: list[str] = field(default_factory=list)

    def add(self, source: str) -> None:
        words = visible(one_line(source))[:SOURCE_CHARACTERS].strip()
        if words and words not in self.sources:
            self.sources.append(words)
        if len(self.sources) > MOST_SOURCES:
            self.sources = [EARLIER, *self.sources[-MOST_SOURCES + 1 :]]

    def hear(self, message: Inbound, *, is_peer: bool) -> None:
        """Takes in the message of a run; `is_peer` tells whether its sender may have tools act."""
        for part in message.parts:
            self.hear(part, is_peer=is_peer)
        if message.parts:
            return
        who = message.sender.name or "a guest"
        if message.origin is Origin.CARD:
            self.add("the card")
        elif message.origin is Origin.TASK and message.errand is None:
            self.add("a report from the background")
        elif message.forwarded:
            self.add(f"a forwarded message from {message.forwarded}")
        else:
            self._name(message.text)
        if not is_peer:
            self.add(f"a message from {who}")
        if message.quoted:
            self.add(f"a quoted message from {message.quoted.sender}" if message.quoted.sender else "a quoted message")
        for number, attachment in enumerate(message.attachments, start=1):
            self.add(f"the file {attachment.name or number}")

    def recall(self, text: str) -> None:
        """Takes in a person's earlier message from the history."""
        if prompt.holds_words_of_others(text):
            self.add("an earlier message with words of others")
        else:
            self._name(text)

    def recall_answers(self, turn: Turn) -> None:
        """Takes in stored answers without the checkpoint that tells what they were made of, or of another agent.

        A client that gives the whole conversation itself answers for it.
        """
        given = turn.message.given
        is_stored = given is None or given.history is None
        if is_stored and any(entry.author is Author.BOT for entry in turn.history):
            self.add(EARLIER)

    def use(self, tool: Tool, written: str) -> None:
        """Takes in the result of a tool."""
        if tool.source is None:
            return
        try:
            self.add(tool.source(written))
        except ToolError:
            # The tool has refused these arguments too, and returned nothing of others.
            return

    def names(self, address: str) -> bool:
        """Whether a person in this talk has named this very address."""
        place = _place(address)
        return place is not None and place in self.named

    def _name(self, text: str) -> None:
        for word in text[:SEARCHED_CHARACTERS].split():
            word = word.strip(_AROUND)
            place = _place(word) if "." in word or "://" in word else None
            if place is not None and place not in self.named:
                self.named.append(place)
        del self.named[:-MOST_ADDRESSES]


def address_of(written: str) -> str:
    """The address in the arguments of a tool that fetches pages."""
    arguments = msgspec.json.decode(written)
    return str(arguments.get("url", "")) if isinstance(arguments, dict) else ""


def _place(address: str) -> str | None:
    """Host, port, path and query in one spelling: what a fetch of an address tells its host."""
    try:
        url = guard.parse(address if "://" in address else f"https://{address}")
        if url.scheme not in ("http", "https") or not url.raw_host or url.raw_user or url.raw_password:
            return None
        port = f":{url.explicit_port}" if url.explicit_port not in (None, 80, 443) else ""
        return f"{_host(url)}{port}{url.raw_path.rstrip('/')}?{url.raw_query_string}"
    except (ToolError, ValueError):
        return None


def _host(url: URL) -> str:
    return (url.raw_host or "").lower().rstrip(".")
