"""langchain-openai: its chat model over chat completions and over responses."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI

from tests.clients.driving import Place, Scenario, drive, scenarios_of


def model(place: Place, by_responses: bool) -> ChatOpenAI:
    return ChatOpenAI(base_url=place.url, api_key=place.key, model="bot", use_responses_api=by_responses)


def words(message: Any) -> str:
    text = message.text
    return text() if callable(text) and not isinstance(text, str) else str(text)


def scenarios(by_responses: bool) -> dict[str, Scenario]:
    async def whole(place: Place, verb: str) -> str:
        return words(await model(place, by_responses).ainvoke(place.said(verb)))

    async def streamed(place: Place, verb: str) -> str:
        return "".join([words(chunk) async for chunk in model(place, by_responses).astream(place.said(verb))])

    async def second(place: Place) -> str:
        asked = HumanMessage(place.first)
        answer = await model(place, by_responses).ainvoke([asked])
        return words(await model(place, by_responses).ainvoke([asked, answer, HumanMessage(place.said("second"))]))

    return scenarios_of(whole, streamed, second)


drive({"langchain chat": scenarios(False), "langchain responses": scenarios(True)})
