"""Stands between a client program and the gateway, passes everything on as it comes, and keeps what was asked."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp import web

from tests.clients.expectations import EXPECTED, asked_for

# What is about the machine, the connection or the key is nobody's business later.
KEPT = ("accept", "content-type", "user-agent")
HOP = ("host", "connection", "content-length", "transfer-encoding", "accept-encoding", "content-encoding", "keep-alive")
RUN = re.compile(r"(?:resp_|chatcmpl-)([0-9a-f]{32})")


class Recording:
    """`url` is for the clients; `save` writes one file for each of them."""

    def __init__(self, gateway: str) -> None:
        self._gateway = gateway
        self._exchanges: list[dict[str, Any]] = []
        self.url = ""

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(auto_decompress=False, trust_env=False)
        self._runner = web.ServerRunner(web.Server(self._pass_on))
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{port}/v1"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()
        await self._session.close()

    async def _pass_on(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP}
        where = f"{self._gateway}{request.raw_path}"
        async with self._session.request(request.method, where, data=body or None, headers=headers) as got:
            told = {name: value for name, value in got.headers.items() if name.lower() not in HOP}
            answer = web.StreamResponse(status=got.status, headers=told)
            await answer.prepare(request)
            whole = b""
            async for chunk in got.content.iter_any():
                whole += chunk
                await answer.write(chunk)
            await answer.write_eof()
        self._keep(request, body, got.status, whole)
        return answer

    def _keep(self, request: web.BaseRequest, body: bytes, status: int, answer: bytes) -> None:
        lower = {name.lower(): value for name, value in request.headers.items()}
        run = RUN.search(answer.decode(errors="replace"))
        self._exchanges.append(
            {
                "method": request.method,
                "path": request.raw_path,
                "headers": {name: lower[name] for name in KEPT if name in lower},
                "body": json.loads(body) if body else None,
                "status": status,
                "run": run[1] if run else "",
            }
        )

    def save(self, folder: Path, clients: Mapping[str, object]) -> None:
        folder.mkdir(exist_ok=True)
        for client in clients:
            scenarios = {name: self._of(client, name) for name in EXPECTED}
            text = json.dumps({name: each for name, each in scenarios.items() if each}, indent=1, ensure_ascii=False)
            (folder / f"{client.replace(' ', '-').lower()}.json").write_text(f"{text}\n", encoding="utf-8")

    def _of(self, client: str, scenario: str) -> list[dict[str, Any]]:
        """In their order; the ids of our own answers are named by the exchange that brought them."""
        said = [json.dumps(text) for text in asked_for(client, scenario)]
        mine = [each for each in self._exchanges if any(text in json.dumps(each["body"]) for text in said)]
        kept = []
        for each in mine:
            text = json.dumps({name: value for name, value in each.items() if name != "run"})
            for number, before in enumerate(mine):
                if before["run"]:
                    text = text.replace(before["run"], f"<run {number}>")
            kept.append(json.loads(text))
        return kept
