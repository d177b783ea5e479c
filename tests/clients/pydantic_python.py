"""pydantic-ai: an agent of its own over our model, by chat completions and by responses."""

from __future__ import annotations

from typing import Any

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.clients.driving import Place, Scenario, drive, scenarios_of


def agent(place: Place, kind: type[Any]) -> Agent[None, str]:
    return Agent(kind("bot", provider=OpenAIProvider(base_url=place.url, api_key=place.key)))


def scenarios(kind: type[Any]) -> dict[str, Scenario]:
    async def whole(place: Place, verb: str) -> str:
        return (await agent(place, kind).run(place.said(verb))).output

    async def streamed(place: Place, verb: str) -> str:
        async with agent(place, kind).run_stream(place.said(verb)) as result:
            return await result.get_output()

    async def second(place: Place) -> str:
        first = await agent(place, kind).run(place.first)
        return (await agent(place, kind).run(place.said("second"), message_history=first.all_messages())).output

    return scenarios_of(whole, streamed, second)


drive({"pydantic-ai chat": scenarios(OpenAIChatModel), "pydantic-ai responses": scenarios(OpenAIResponsesModel)})
