"""What real client programs send, played again as it was recorded: each sees what its program saw.

`make clients` drives the programs themselves.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.clients.agent import ClientsAgent
from tests.clients.expectations import EXPECTED, asked_for, complaint
from tests.worlds.api import ApiWorld, Frame

RECORDED = Path(__file__).resolve().parents[2] / "clients" / "recorded"
RUN = re.compile(r"(?:resp_|chatcmpl-)([0-9a-f]{32})")
ALL = [(path.stem, name) for path in sorted(RECORDED.glob("*.json")) for name in json.loads(path.read_text())]


async def played(api: ApiWorld, exchange: dict[str, Any], secret: str) -> tuple[httpx.Response, list[Frame]]:
    headers = {**exchange["headers"], "Authorization": f"Bearer {secret}"}
    asked = {"headers": headers, "json": exchange["body"]}
    async with api.http.stream(exchange["method"], exchange["path"], **asked) as response:
        is_stream = response.headers["Content-Type"].startswith("text/event-stream")
        frames = [frame async for frame in api.frames(response)] if is_stream else []
        if not is_stream:
            await response.aread()
    return response, frames


def seen(response: httpx.Response, frames: list[Frame]) -> str:
    """As the pickiest of them read it."""
    if not frames:
        body = response.json()
        if error := body.get("error"):
            return str(error["message"])
        if "choices" in body:
            return str(body["choices"][0]["message"]["content"])
        assert not [item for item in body["output"] if item["type"].startswith("function_call")]
        return words_of(body["output"])
    if frames[-1].data == "[DONE]":
        return seen_in_chunks([frame.json for frame in frames[:-1]])
    last = frames[-1].json["response"]
    text = "".join(frame.json["delta"] for frame in frames if frame.event == "response.output_text.delta")
    if last["error"]:
        return str(last["error"]["message"])
    assert words_of(last["output"]) == text
    return text


def words_of(items: list[dict[str, Any]]) -> str:
    return "".join(part["text"] for item in items if item["type"] == "message" for part in item["content"])


def seen_in_chunks(chunks: list[dict[str, Any]]) -> str:
    """An error counts only where there are no choices, and nothing counts behind the end of a choice."""
    text = ""
    for chunk in chunks:
        if "choices" not in chunk:
            return str(chunk["error"]["message"])
        for choice in chunk["choices"]:
            text += choice["delta"].get("content") or ""
            assert "tool_calls" not in choice["delta"]
            if choice["finish_reason"]:
                return text
    raise AssertionError("it never ended")


@pytest.mark.parametrize(("client", "scenario"), [pytest.param(*each, id=" ".join(each)) for each in ALL])
async def test_a_real_client_is_answered_as_it_understands(tmp_path: Path, client: str, scenario: str) -> None:
    exchanges = json.loads((RECORDED / f"{client}.json").read_text(encoding="utf-8"))[scenario]
    agent = ClientsAgent()
    runs: list[str] = []
    saw = ""
    async with ApiWorld(tmp_path, agent) as api:
        for exchange in exchanges:
            text = json.dumps(exchange)
            for number, run in enumerate(runs):
                text = text.replace(f"<run {number}>", run)
            response, frames = await played(api, json.loads(text), "wrong" if scenario == "wrong-key" else api.key)
            assert response.status_code == exchange["status"], response.text
            found = RUN.search(frames[0].data if frames else response.text)
            runs.append(found[1] if found else "")
            saw = seen(response, frames)
    name = client_named(exchanges, scenario)
    assert complaint(name, scenario, saw, sum(agent.asked[said] for said in asked_for(name, scenario))) == ""


def client_named(exchanges: list[dict[str, Any]], scenario: str) -> str:
    """As it calls itself in what it says."""
    (verb, *_) = asked_for("", scenario)
    match = re.search(rf'"{verb}([^"]+)"', json.dumps(exchanges))
    assert match is not None
    return match[1]


def test_every_client_is_recorded_in_every_scenario() -> None:
    by_hand = {"open-webui-chat", "open-webui-responses", "openai-items"}
    clients = {client for client, _ in ALL} - by_hand
    assert len(clients) == 15
    assert {client: {name for each, name in ALL if each == client} for client in clients} == dict.fromkeys(
        clients, set(EXPECTED)
    )
