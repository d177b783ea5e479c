"""Which models a person may choose for a bot, judged by name alone and without the model library (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from tidings.bots.assistant.settings import Assistant

# The providers that the library knows; a test compares the list. Anything else in front of a colon is part
# of a name, as in llama3:8b.
PROVIDERS = frozenset(
    (
        *("alibaba", "anthropic", "azure", "azure-responses", "bedrock", "bedrock-mantle", "cerebras", "cohere"),
        *("crusoe", "deepseek", "elevenlabs", "fireworks", "github", "github-copilot", "google", "google-cloud"),
        *("groq", "heroku", "huggingface", "litellm", "meta", "mistral", "moonshotai", "nebius", "ollama", "openai"),
        *("openai-chat", "openai-chatgpt", "openai-codex", "openai-decisions", "openai-responses", "openrouter"),
        *("ovhcloud", "sambanova", "sentence-transformers", "snowflake", "system-one", "together", "typesafe"),
        *("vercel", "vllm", "voyageai", "xai", "zai"),
    )
)
GATEWAY = "gateway/"


def permit(bot: Assistant, wanted: str) -> tuple[str, str]:
    """The model's full name, or the reason why it may not be chosen."""
    own, full, permitted = provider(bot), _full(bot, wanted), choices(bot)
    for name in (wanted, full):
        if name in permitted:
            return name, ""
    if bot.models:
        return "", f"{wanted} is not among the models of this bot. There are:\n{lines(permitted)}"
    other = full.partition(":")[0] if ":" in full else ""
    if other != own if own else is_provider(other):
        others = f" Besides there are:\n{lines(permitted[1:])}" if permitted[1:] else ""
        where = f"of {own}, or /model {own}:NAME" if own else "at the same address"
        return "", (
            f"I cannot ask {wanted}: another provider would need another key."
            f" Write /model NAME for a model {where}.{others}"
        )
    return (full, "") if _is_name(full) else ("", "That is no name of a model.")


def chosen(bot: Assistant, preferred: str) -> str:
    """The conversation's choice if the settings still permit it; otherwise empty, which means the bot's own model."""
    return permit(bot, preferred)[0] if preferred and preferred != bot.model else ""


def choices(bot: Assistant) -> list[str]:
    """The models by name: the bot's own first, then its fallbacks and those that its settings list."""
    fallbacks = (choice.model for choice in bot.fallbacks)
    return list(dict.fromkeys((bot.model, *fallbacks, *(_full(bot, name) for name in bot.models))))


def provider(bot: Assistant) -> str:
    """The provider in a model's name; empty for a server at a `base_url` whose model name contains none."""
    before, colon, _ = bot.model.partition(":")
    return before if colon and (not bot.base_url or is_provider(before)) else ""


def is_provider(name: str) -> bool:
    return name in PROVIDERS or name.startswith(GATEWAY)


def lines(names: Sequence[str]) -> str:
    return "\n".join(f"  {name}" for name in names)


def _full(bot: Assistant, name: str) -> str:
    """The full name; a bare name belongs to the bot's own provider."""
    return name if ":" in name or not provider(bot) else f"{provider(bot)}:{name}"


def _is_name(name: str) -> bool:
    return name.isprintable() and len(name) <= 200 and " " not in name and not name.endswith(":")
