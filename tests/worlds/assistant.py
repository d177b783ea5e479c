"""The assistant in a box: a simulated provider over real HTTP, and the bot that asks it.

    async with ProviderServer() as provider:
        provider.script(Say("hello"))
        async with World(tmp_path, assistant(provider)) as world:
            world.paper.says("hi")
            await world.paper.until(lambda paper: paper.posts == ["hello"])

settings_for(provider, api, **more)   as `[bot]` would say it; quick retries, no network tools, and nobody is asked
                                      before a tool acts: stories about approvals say `approvals={}`
assistant(provider, api, **more)      the bot itself; its World closes it
"""

from __future__ import annotations

import re
from typing import Any

# Not when the first message comes: on a busy machine they take longer to load than a test has patience.
import pydantic_ai.models.anthropic
import pydantic_ai.models.openai  # noqa: F401

from tests.simulators.provider.simulator import MODEL, ProviderServer
from tests.simulators.provider.truth import Api
from tidings.bots.assistant.agent import Assistant
from tidings.bots.assistant.settings import Assistant as Settings

PROVIDERS: dict[Api, str] = {"chat": "openai-chat", "responses": "openai-responses", "messages": "anthropic"}
# Nobody is asked, whatever the bot has read.
ALLOWING = {"modes": {"*": "allow"}, "trust_tainted": True}
APIS: tuple[Api, ...] = ("chat", "responses", "messages")


def settings_for(provider: ProviderServer, api: Api = "chat", **more: Any) -> Settings:
    address = provider.anthropic_url if api == "messages" else provider.openai_url
    given: dict[str, Any] = {
        "model": f"{PROVIDERS[api]}:{MODEL}",
        "base_url": address,
        "api_key": provider.key,
        "retry_seconds": 0.01,
        # A busy machine is no provider that has gone silent; where a test is about silence, it says how much.
        "stall_seconds": 20.0,
        "read_seconds": 20.0,
        "tools": ("time", "files", "notes"),
        "approvals": ALLOWING,
        **more,
    }
    return Settings.model_validate(given)


def assistant(provider: ProviderServer, api: Api = "chat", **more: Any) -> Assistant:
    return Assistant("Tide", settings_for(provider, api, **more))


def unmarked(text: str) -> str:
    """What a provider was sent, without the mark that the gateway's own lines bear in that run."""
    return re.sub(r"(\((?:Note|From|In reply|Passed on|Attached)) [0-9a-f]{8}\b", r"\1", text)
