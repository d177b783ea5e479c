"""The chat commands for the model and the persona of a conversation: /model, /persona and /compact."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidings.bots.assistant import model_choice
from tidings.bots.assistant.settings import Assistant
from tidings.core.inbound.commands import Command, Obeyed
from tidings.core.memory import preferences
from tidings.core.roles import Permission
from tidings.core.store.store import Transaction
from tidings.core.types import Inbound

PERSONA_CHARACTERS = 4000
DEFAULT = "default"
NO_MODEL = "This bot has no model to choose."


def commands(bot_of: Callable[[Inbound], str], settings: Mapping[str, Assistant]) -> tuple[Command, ...]:
    """The commands, or none if no bot has a model; `bot_of` names the bot that answers a message."""
    if not any(bot.model for bot in settings.values()):
        return ()

    def asked(inbound: Inbound) -> Assistant | None:
        bot = settings.get(bot_of(inbound))
        return bot if bot is not None and bot.model else None

    def model(tx: Transaction, inbound: Inbound) -> Obeyed:
        bot = asked(inbound)
        return Obeyed(_model(tx, inbound, bot) if bot else NO_MODEL)

    def persona(tx: Transaction, inbound: Inbound) -> Obeyed:
        bot = asked(inbound)
        return Obeyed(_persona(tx, inbound, bot) if bot else "This bot has no persona to choose.")

    return (
        Command("model", "which model answers here; /model NAME asks another", model, Permission.WORK),
        Command("persona", "who I am here; /persona TEXT changes it", persona, Permission.WORK),
        # Only the bot can sum up a conversation, so the command starts a run.
        Command("compact", "sum up what was said so far, to make room", None, Permission.WORK),
    )


def _model(tx: Transaction, inbound: Inbound, bot: Assistant) -> str:
    conversation, wanted = inbound.conversation.id, inbound.argument
    if not wanted:
        return _which(bot, model_choice.chosen(bot, preferences.read(tx, conversation).get("model", "")))
    if wanted.lower() == DEFAULT:
        preferences.choose(tx, conversation, "model", "")
        return f"From now on {bot.model} answers here again."
    name, trouble = model_choice.permit(bot, wanted)
    if trouble:
        return trouble
    preferences.choose(tx, conversation, "model", "" if name == bot.model else name)
    return f"From now on {name} answers here. /model {DEFAULT} goes back to {bot.model}."


def _which(bot: Assistant, chosen: str) -> str:
    if chosen:
        first = f"{chosen} answers here, as was chosen by /model. /model {DEFAULT} goes back to {bot.model}."
    else:
        first = f"{bot.model} answers here."
    others = [name for name in model_choice.choices(bot) if name != (chosen or bot.model)]
    lines = [first]
    if others:
        lines.append(f"/model NAME chooses another:\n{model_choice.lines(others)}")
    if not bot.models:
        whose = f"of {own}" if (own := model_choice.provider(bot)) else "at the same address"
        lines.append(f"/model NAME chooses any {'other ' if others else ''}model {whose}, by its name.")
    elif not others:
        lines.append("There is no other to choose.")
    return "\n".join(lines)


def _persona(tx: Transaction, inbound: Inbound, bot: Assistant) -> str:
    conversation, wanted = inbound.conversation.id, inbound.argument
    if not wanted:
        chosen = preferences.read(tx, conversation).get("persona", "")
        if chosen:
            back = f"/persona {DEFAULT} goes back to what I am elsewhere."
            return f"Here I am, as was chosen by /persona:\n{chosen}\n\n{back}"
        return f"I am:\n{bot.persona}" if bot.persona else "I have no persona yet. /persona TEXT sets one."
    if wanted.lower() == DEFAULT:
        preferences.choose(tx, conversation, "persona", "")
        return "From now on I am here what I am elsewhere."
    if len(wanted) > PERSONA_CHARACTERS:
        return f"That is too long: {len(wanted):,} characters, and {PERSONA_CHARACTERS:,} are possible."
    preferences.choose(tx, conversation, "persona", wanted)
    return f"From now on I am that here. /persona {DEFAULT} goes back."
