"""The openai SDK of Python: chat completions and responses."""

from __future__ import annotations

from typing import Any

from openai import AsyncOpenAI

from tests.clients.driving import Place, drive


def sdk(place: Place) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=place.url, api_key=place.key)


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


async def chat(place: Place, *messages: Any) -> str:
    completion = await sdk(place).chat.completions.create(model="bot", messages=list(messages))
    return completion.choices[0].message.content or ""


async def chat_stream(place: Place, *messages: Any) -> str:
    stream = await sdk(place).chat.completions.create(model="bot", messages=list(messages), stream=True)
    return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])


async def second_chat(place: Place) -> str:
    answer = await chat(place, user(place.first))
    return await chat(place, user(place.first), {"role": "assistant", "content": answer}, user(place.said("second")))


async def respond(place: Place, given: Any, **more: Any) -> Any:
    return await sdk(place).responses.create(model="bot", input=given, **more)


async def response_stream(place: Place, text: str) -> str:
    async with sdk(place).responses.stream(model="bot", input=text) as stream:
        async for event in stream:
            if event.type == "response.failed":
                return str(event.response.error)
        return (await stream.get_final_response()).output_text


async def second_response(place: Place) -> str:
    first = await respond(place, place.first)
    second = await respond(place, place.said("second"), previous_response_id=first.id)
    return str(second.output_text)


async def second_by_items(place: Place) -> str:
    first = await respond(place, place.first)
    items = [user(place.first), *(item.to_dict() for item in first.output), user(place.said("second"))]
    return str((await respond(place, items)).output_text)


async def text_of(place: Place, verb: str) -> str:
    return str((await respond(place, place.said(verb))).output_text)


drive(
    {
        "openai chat": {
            "plain": lambda it: chat(it, user(it.said("plain"))),
            "streamed": lambda it: chat_stream(it, user(it.said("streamed"))),
            "fail": lambda it: chat(it, user(it.said("fail"))),
            "fail-streamed": lambda it: chat_stream(it, user(it.said("fail streamed"))),
            "tools": lambda it: chat(it, user(it.said("tools"))),
            "tools-streamed": lambda it: chat_stream(it, user(it.said("tools streamed"))),
            "second": second_chat,
            "wrong-key": lambda it: chat(it, user(it.said("wrong-key"))),
        },
        "openai responses": {
            "plain": lambda it: text_of(it, "plain"),
            "streamed": lambda it: response_stream(it, it.said("streamed")),
            "fail": lambda it: text_of(it, "fail"),
            "fail-streamed": lambda it: response_stream(it, it.said("fail streamed")),
            "tools": lambda it: text_of(it, "tools"),
            "tools-streamed": lambda it: response_stream(it, it.said("tools streamed")),
            "second": second_response,
            "wrong-key": lambda it: text_of(it, "wrong-key"),
        },
        "openai items": {"second": second_by_items},
    }
)
