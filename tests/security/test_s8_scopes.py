"""S8: what a key may is what its owner granted, whatever a client says of itself."""

import ast
from pathlib import Path

import pytest

from tests.security.test_s2_keys_required import GUARDED, filled
from tests.security.wire import JSON, ask, bearer
from tests.worlds.api import ApiWorld
from tests.worlds.world import Echo
from tidings.adapters.api.routes import ENDPOINTS
from tidings.core.desk.people import Scope
from tidings.core.people import policy
from tidings.core.roles import GIVEN, OWNER, Role
from tidings.core.settings import Access

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


@pytest.mark.parametrize("role", GIVEN)
async def test_s8_a_key_with_every_scope_opens_what_its_persons_role_permits(tmp_path: Path, role: Role) -> None:
    """D2, S8: the scope admin is bounded by the role, on every route."""
    async with ApiWorld(tmp_path, Echo()) as api:
        await api.gateway.desk.people.admit(OWNER, "paper:8", role)
        key = bearer(await api.new_key("client", "admin", person="paper:8"))
        for endpoint in GUARDED:
            assert endpoint.needs is not None, endpoint
            body = CLAIM if endpoint.method == "POST" else b""
            answer = await ask(api.url, endpoint.method, filled(endpoint.path), key, JSON, *CLAIMS, body=body)
            if policy.may(role, endpoint.needs):
                assert answer.status not in (401, 403), endpoint
            else:
                assert (answer.status, answer.code) == (403, "missing_role"), endpoint
                words = answer.json["error"]["message"]
                assert f"has the role {role.value!r}, which lacks the permission {endpoint.needs.value!r}" in words


async def test_s8_a_removed_persons_key_opens_nothing(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo(), allow=["paper:8"]) as api:
        key = bearer(await api.new_key("client", "admin", person="paper:8"))
        assert (await ask(api.url, "GET", "/v1/models", key)).status == 200
        # Whom only the settings name keeps the key, which is worth nothing without the person.
        api.gateway._parts.people.renew(Access())
        for endpoint in GUARDED:
            answer = await ask(api.url, endpoint.method, filled(endpoint.path), key, JSON)
            assert (answer.status, answer.code) == (401, "invalid_api_key"), endpoint


# Every route with what it asks for, so that a new one is thought about.
NEEDS = {
    ("chat", "talk"): {
        "/openapi.json",
        "/v1/models",
        "/v1/capabilities",
        "/v1/chat",
        "/v1/responses",
        "/v1/conversations",
    },
    ("runs", "talk"): {"/v1/runs"},
    ("approve", "talk"): {"/v1/approvals", "/v1/runs"},
    ("notify", "work"): {"/v1/notify", "/v1/deliveries"},
    ("schedules", "work"): {"/api/jobs"},
    ("board", "work"): {"/api/board"},
    ("people", "people"): {"/v1/people"},
    ("usage", "basics"): {"/v1/usage"},
    ("audit", "operate"): {"/v1/audit"},
    ("admin", "operate"): {"/health/detailed", "/metrics"},
}


def test_s8_every_route_asks_for_a_scope_and_a_permission() -> None:
    found: dict[tuple[str, str], set[str]] = {}
    for endpoint in GUARDED:
        assert endpoint.scope is not None
        assert endpoint.needs is not None
        place = "/".join(endpoint.path.split("/")[:3])
        found.setdefault((endpoint.scope.value, endpoint.needs.value), set()).add(place)
    assert found == NEEDS


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
                if words & {"add_key", "revoke_key"} or ("keys" in words and words & {"add", "revoke", "change"}):
                    callers.append(f"{path.stem}.{function.name}")
    assert callers == ["adapter._change_keys", "keys.add", "keys.revoke"]
    assert [endpoint.path for endpoint in ENDPOINTS if "key" in endpoint.path] == []
