"""The chat command /board: reads an order from a message, and names its sender."""

from __future__ import annotations

from tidings.core.desk.board import CardFile, Hand, NewCard, Order, is_link, link_to
from tidings.core.errors import Overdrawn, TidingsError, Unkeepable, Unknown, Unsupported
from tidings.core.people import names
from tidings.core.redaction import plain
from tidings.core.types import Inbound

# Errors that become a reply.
REFUSALS = (Overdrawn, Unkeepable, Unknown, Unsupported)
NAME_CHARACTERS = 60
# Removed from names, because only the gateway writes an id in parentheses after a name.
BRACKETS = str.maketrans("", "", "()")
HELP = """\
/board – what is on it (/board list done shows one state)
/board add TITLE to=BOT after=3,4 priority=2 budget=20 – a new card; further lines are its text
/board show 12 – all of one card
/board comment 12 TEXT
/board attach 12 https://example.org/plan – a link for the worker
/board unblock 12 TEXT – continues it, with a comment
/board done 12 – accepts it, or marks it as done
/board block 12 REASON
/board link 3 12 – 12 waits for 3
/board archive 12 – puts it away and ends its worker
/board watch 12, /board unwatch 12 – whether this chat gets notices about it"""


def parse(argument: str, verbs: tuple[str, ...]) -> Order | str:
    """Reads an order, or returns the help text; raises Unkeepable with what is wrong."""
    verb, rest = _first(argument)
    verb = verb.lower()
    if not verb or verb == "list":
        return Order("list", other=rest.lower())
    if verb == "help":
        return HELP
    if verb == "add":
        return Order("add", new=_new(rest))
    if verb not in verbs:
        raise Unkeepable(f"there is no /board {verb}; there are: {', '.join(verbs)}")
    id, text = _first(rest)
    if not id:
        raise Unkeepable(f"say which card: /board {verb} 12")
    if verb == "link":
        if not text:
            raise Unkeepable("say which card waits: /board link 3 12 lets 12 wait for 3")
        return Order("link", id=id, other=text)
    if verb == "comment" and not text:
        raise Unkeepable(f"say what to write: /board comment {id} TEXT")
    if verb == "attach":
        return Order("attach", id=id, file=_link(id, text))
    if verb in ("watch", "unwatch"):
        # People in this chat may not make the gateway write to other chats.
        if text:
            raise Unkeepable(f"/board {verb} {id} applies to this chat; only the owner may name another one")
        return Order(verb, id=id)
    return Order(verb, id=id, text=text)


def _first(text: str) -> tuple[str, str]:
    """The first word, and the rest with its line breaks."""
    word, *rest = text.split(maxsplit=1) or [""]
    return word, "".join(rest).strip()


def _new(text: str) -> NewCard:
    """Reads a new card: the first line has name=value settings and the title, further lines are the body."""
    first, _, body = text.partition("\n")
    title, given = [], {}
    for piece in first.split():
        name, sign, value = piece.partition("=")
        if sign and name in ("to", "after", "priority", "budget", "workspace", "triage"):
            given[name] = value
        else:
            title.append(piece)
    return NewCard(
        title=" ".join(title),
        body=body.strip(),
        assignee=given.get("to", ""),
        parents=tuple(part for part in given.get("after", "").split(",") if part),
        priority=_number(given, "priority"),
        budget=_number(given, "budget"),
        workspace=given.get("workspace", ""),
        triage=given.get("triage", "") in ("yes", "true", "1"),
    )


def _number(given: dict[str, str], name: str) -> int:
    value = given.get(name, "0")
    if not value.removeprefix("-").isascii() or not value.removeprefix("-").isdigit() or len(value) > 9:
        raise Unkeepable(f"{name} must be a number, not {value!r}")
    return int(value)


def _link(id: str, text: str) -> CardFile:
    if not is_link(text):
        raise Unkeepable(
            f"attach a link: /board attach {id.removeprefix('#')} https://…; for text use /board comment, for files"
            " the command line"
        )
    return link_to(text)


def hand_of(inbound: Inbound, bot: str) -> Hand:
    place = (inbound.target, inbound.conversation, inbound.sender)
    return Hand(_name(inbound), *place, is_answered=True, bot=bot, asker=inbound.asker)


def _name(inbound: Inbound) -> str:
    """The person's chosen name, with their unique id after it."""
    name = " ".join(inbound.sender.name.translate(BRACKETS).split())[:NAME_CHARACTERS]
    id = names.name_of(inbound.target, inbound.sender)
    return f"{name} ({id})" if name else id


def refusal(error: TidingsError) -> str:
    words = str(error)
    return plain(f"{words[:1].upper()}{words[1:]}.")
