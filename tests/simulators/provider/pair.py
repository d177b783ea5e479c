"""The simulated provider and the real libraries' clients, joined."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import openai
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from tests.simulators.provider.simulator import MODEL, ProviderServer
from tests.simulators.provider.truth import Api


def openai_for(provider: ProviderServer, *, timeout: float = 5.0, **more: Any) -> openai.AsyncOpenAI:
    """Tries nothing again unless told to."""
    # Nothing here is encrypted, and to load certificates takes longer than most tests.
    plain = openai.DefaultAsyncHttpxClient(verify=False)
    settings = {"api_key": provider.key, "max_retries": 0, "timeout": timeout, **more}
    return openai.AsyncOpenAI(base_url=provider.openai_url, http_client=plain, **settings)


def anthropic_for(provider: ProviderServer, *, timeout: float = 5.0, **more: Any) -> anthropic.AsyncAnthropic:
    plain = anthropic.DefaultAsyncHttpxClient(verify=False)
    settings = {"api_key": provider.key, "max_retries": 0, "timeout": timeout, **more}
    return anthropic.AsyncAnthropic(base_url=provider.anthropic_url, http_client=plain, **settings)


@asynccontextmanager
async def model_for(
    provider: ProviderServer,
    api: Api,
    *,
    name: str = MODEL,
    requires_finish: bool = False,
    timeout: float = 5.0,  # noqa: ASYNC109
) -> AsyncIterator[Model]:
    """pydantic-ai's model for a dialect."""
    if api == "messages":
        async with anthropic_for(provider, timeout=timeout) as client:
            yield AnthropicModel(name, provider=AnthropicProvider(anthropic_client=client))
        return
    async with openai_for(provider, timeout=timeout) as speaker:
        shared = OpenAIProvider(openai_client=speaker)
        if api == "responses":
            yield OpenAIResponsesModel(name, provider=shared)
        else:
            profile = OpenAIModelProfile(openai_chat_streaming_requires_finish_reason=requires_finish)
            yield OpenAIChatModel(name, provider=shared, profile=profile)
