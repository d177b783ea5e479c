"""litellm: chat completions and responses."""

from __future__ import annotations

from typing import Any

import litellm

from tests.clients.driving import Place, drive, scenarios_of

litellm.suppress_debug_info = True


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


async def chat(place: Place, *messages: Any, **more: Any) -> Any:
    return await litellm.acompletion(
        model="openai/bot", api_base=place.url, api_key=place.key, messages=list(messages), **more
    )


async def whole(place: Place, *messages: Any) -> str:
    return str((await chat(place, *messages)).choices[0].message.content)


async def streamed(place: Place, text: str) -> str:
    return "".join([chunk.choices[0].delta.content or "" async for chunk in await chat(place, user(text), stream=True)])


async def second_chat(place: Place) -> str:
    answer = await whole(place, user(place.first))
    return await whole(place, user(place.first), {"role": "assistant", "content": answer}, user(place.said("second")))


async def respond(place: Place, text: str, **more: Any) -> Any:
    return await litellm.aresponses(model="openai/bot", api_base=place.url, api_key=place.key, input=text, **more)


async def text_of(response: Any) -> str:
    parts = [part.text for item in response.output if item.type == "message" for part in item.content]
    return "".join(parts)


async def responded(place: Place, verb: str) -> str:
    return await text_of(await respond(place, place.said(verb)))


async def response_stream(place: Place, verb: str) -> str:
    text = ""
    async for event in await respond(place, place.said(verb), stream=True):
        if event.type == "response.failed":
            return str(event.response.error)
        if event.type == "response.output_text.delta":
            text += event.delta
    return text


async def second_response(place: Place) -> str:
    first = await respond(place, place.first)
    return await text_of(await respond(place, place.said("second"), previous_response_id=first.id))


drive(
    {
        "litellm chat": {
            "plain": lambda it: whole(it, user(it.said("plain"))),
            "streamed": lambda it: streamed(it, it.said("streamed")),
            "fail": lambda it: whole(it, user(it.said("fail"))),
            "fail-streamed": lambda it: streamed(it, it.said("fail streamed")),
            "tools": lambda it: whole(it, user(it.said("tools"))),
            "tools-streamed": lambda it: streamed(it, it.said("tools streamed")),
            "second": second_chat,
            "wrong-key": lambda it: whole(it, user(it.said("wrong-key"))),
        },
        "litellm responses": scenarios_of(responded, response_stream, second_response),
    }
)
