"""S8: what a key may is what its owner granted, whatever a client says of itself."""

import ast
from pathlib import Path

import pytest

from tests.security.test_s2_keys_required import GUARDED, filled
from tests.security.wire import JSON, ask, bearer
from tests.worlds.api import ApiWorld
from tests.worlds.world import Echo
from tidings.adapters.api.keys import Scope
from tidings.adapters.api.routes import ENDPOINTS

ROOT = Path(__file__).resolve().parents[2]
# What a client might try to have the server believe.
CLAIMS = (
    "X-Scopes: admin",
    "X-Tidings-Scopes: admin chat runs notify",
    "X-Openclaw-Scopes: operator.admin",
    "X-Role: admin",
    "X-Tidings-Key: owner",
)
CLAIM = b'{"scope": "admin", "scopes": ["admin"], "role": "admin", "key": "owner", "input": ""}'


@pytest.mark.parametrize("held", list(Scope))
async def test_s8_a_key_opens_what_it_was_made_for_and_nothing_else(tmp_path: Path, held: Scope) -> None:
    async with ApiWorld(tmp_path, Echo()) as api:
        key = bearer(await api.new_key("client", held))
        for endpoint in GUARDED:
            path = f"{filled(endpoint.path)}?scope=admin&scopes=admin"
            body = CLAIM if endpoint.method == "POST" else b""
            answer = await ask(api.url, endpoint.method, path, key, JSON, *CLAIMS, body=body)
            if endpoint.scope is held or held is Scope.ADMIN:
                assert answer.status != 403, endpoint
            else:
                assert (answer.status, answer.code) == (403, "missing_scope"), endpoint


async def test_s8_a_key_without_a_word_about_scopes_may_chat_and_run(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo()) as api, api.client(await api.new_key("client")) as http:
        assert (await http.get("/v1/models")).status_code == 200
        assert (await http.post("/v1/runs", json={"input": "hi"})).status_code == 202
        assert (await http.post("/v1/notify", json={"target": "console", "text": "hi"})).status_code == 403
        assert (await http.get("/metrics")).status_code == 403


def test_s8_no_route_makes_or_widens_a_key() -> None:
    """Only who may open the home's own socket or files can: the command line."""
    callers = []
    for path in sorted((ROOT / "adapters").rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                words = {node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute)}
                if "keys" in words and words & {"add", "revoke", "change"}:
                    callers.append(f"{path.stem}.{function.name}")
    assert callers == ["adapter._change_keys"]
    assert [endpoint.path for endpoint in ENDPOINTS if "key" in endpoint.path] == []
