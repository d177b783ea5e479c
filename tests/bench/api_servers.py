"""What the API is measured beside: bare aiohttp handlers, one that stores nothing and one that stores everything."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path

from aiohttp import web

from tests.bench.baseline import BareWriter, turn


async def answer(request: web.BaseRequest) -> web.Response:
    asked = json.loads(await request.read())
    text = f"you said: {asked['messages'][-1]['content']}"
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return web.json_response({"id": "chatcmpl-1", "object": "chat.completion", "choices": [choice]})


async def serve(port: int, durable: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        writer = BareWriter(Path(folder) / "bare.db")
        count = 0

        async def stored(request: web.BaseRequest) -> web.Response:
            """The same rows in the same three commits as one turn of ours."""
            nonlocal count
            count += 1
            await turn(writer, "api", count)
            return await answer(request)

        runner = web.ServerRunner(web.Server(stored if durable else answer))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, backlog=1024).start()
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[2]), sys.argv[1] == "durable"))
