"""What a person is told at once when a command or a press gets no answer."""

from __future__ import annotations

from tidings.core.types import Admission, Duplicate, Inbound, Refusal, Refused, Stored

UNSTORED = "I could not take this just now. Please try again in a moment."
SILENT = "I do not answer in this channel."
ANSWERED = "This was answered already."
REFUSALS = {
    Refusal.NOT_PERMITTED: "Only an owner or admin can do this.",
    Refusal.BUSY: "I have too much waiting here already, so I did not take this. Please try again later.",
    Refusal.TOO_LONG: "This is too long for me, so I did not take it.",
    Refusal.CONFLICT: "I could not take this.",
    Refusal.ALLOWANCE: "The allowance for now is used up, so I did not take this.",
}


def reply_to(admission: Admission | None, inbound: Inbound) -> str:
    """Empty where an answer will come; without an admission the message could not be stored."""
    match admission:
        case None:
            return UNSTORED
        case Stored():
            return ""
        case Duplicate():
            return ANSWERED if inbound.choice else ""
        case Refused(told=True):
            return ""
        case Refused(words=words) if words:
            return words
        case Refused(reason=reason) if reason is not Refusal.NOT_ADMITTED:
            return REFUSALS[reason]
        case _:
            id = f"{inbound.conversation.adapter}:{inbound.sender.id}"
            return f"I don't know you yet, so I can't do this. Your id is {id}."
