"""openai-agents: an agent of its own over our model, by chat completions and by responses."""

from __future__ import annotations

from typing import Any

from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, set_tracing_disabled
from openai import AsyncOpenAI

from tests.clients.driving import Place, Scenario, drive, scenarios_of

set_tracing_disabled(True)


def agent(place: Place, kind: type[Any]) -> Agent[Any]:
    client = AsyncOpenAI(base_url=place.url, api_key=place.key)
    return Agent(name="Client", instructions="Be brief.", model=kind(model="bot", openai_client=client))


def scenarios(kind: type[Any]) -> dict[str, Scenario]:
    async def whole(place: Place, verb: str) -> str:
        return str((await Runner.run(agent(place, kind), place.said(verb))).final_output)

    async def streamed(place: Place, verb: str) -> str:
        result = Runner.run_streamed(agent(place, kind), place.said(verb))
        async for _ in result.stream_events():
            continue
        return str(result.final_output)

    async def second(place: Place) -> str:
        first = await Runner.run(agent(place, kind), place.first)
        given = [*first.to_input_list(), {"role": "user", "content": place.said("second")}]
        return str((await Runner.run(agent(place, kind), given)).final_output)

    return scenarios_of(whole, streamed, second)


drive(
    {
        "openai-agents chat": scenarios(OpenAIChatCompletionsModel),
        "openai-agents responses": scenarios(OpenAIResponsesModel),
    }
)
