"""S2: a key is needed on loopback too, on every route but /health; the first one is made for the owner alone."""

import asyncio
import re
import stat
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.security.command_lines import tidings
from tests.security.wire import JSON, ask, bearer
from tests.worlds.api import ApiWorld
from tests.worlds.process import environment, gateway
from tests.worlds.terminal import Terminal
from tests.worlds.world import Echo
from tidings.adapters.api.keys import make_own, read_own
from tidings.adapters.api.routes import ENDPOINTS
from tidings.adapters.api.settings import HttpSettings
from tidings.adapters.local import socket
from tidings.bots import main
from tidings.core.errors import ConfigError
from tidings.core.redaction import clean

GUARDED = [endpoint for endpoint in ENDPOINTS if endpoint.scope is not None]
# The only ones, whatever is added.
OPEN = {"/health", "/v1/health"}


def filled(path: str) -> str:
    return re.sub(r"\{\w+\}", "run_0123456789abcdef0123456789abcdef", path)


async def test_s2_every_route_but_health_asks_for_a_key(tmp_path: Path) -> None:
    assert {endpoint.path for endpoint in ENDPOINTS if endpoint.scope is None} == OPEN
    async with ApiWorld(tmp_path, Echo()) as api:
        for endpoint in GUARDED:
            for headers in ((), (JSON,), ("Authorization: Bearer ",), ("Authorization: Basic b3duZXI6b3duZXI=",)):
                answer = await ask(api.url, endpoint.method, filled(endpoint.path), *headers)
                assert answer.status == 401, (endpoint.method, endpoint.path, headers)
                assert answer.headers["www-authenticate"] == "Bearer"
        # The same questions with the key: whatever is answered, it is not for want of one.
        for endpoint in GUARDED:
            answer = await ask(api.url, endpoint.method, filled(endpoint.path), bearer(api.key), JSON)
            assert answer.status in (200, 400, 404), (endpoint.method, endpoint.path)
        assert api.rows("SELECT * FROM inbox") == []


async def test_s2_a_key_is_taken_by_two_headers_and_by_nothing_else(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo()) as api:
        for headers in ((bearer(api.key),), (f"authorization: bearer   {api.key}",), (f"X-Api-Key: {api.key}",)):
            assert (await ask(api.url, "GET", "/v1/models", *headers)).status == 200
        for path, header in (
            (f"/v1/models?api_key={api.key}", "Accept: */*"),
            (f"/v1/models?key={api.key}&access_token={api.key}", "Accept: */*"),
            ("/v1/models", f"Cookie: key={api.key}; session={api.key}; Authorization=Bearer {api.key}"),
            ("/v1/models", f"Authorization: Basic {api.key}"),
            ("/v1/models", f"X-Forwarded-Authorization: Bearer {api.key}"),
        ):
            assert (await ask(api.url, "GET", path, header)).status == 401, (path, header)


async def test_s2_health_says_only_that_somebody_is_there(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo()) as api:
        for path in sorted(OPEN):
            answer = await ask(api.url, "GET", path)
            assert (answer.status, answer.json) == (200, {"status": "ok"})
            assert answer.headers["server"] == "tidings"


async def test_s2_the_first_start_makes_a_key_for_the_owner_alone_and_names_its_file(tmp_path: Path) -> None:
    """What a service writes goes into a journal, which others read."""
    async with gateway(tmp_path):
        secret = (tmp_path / "api.key").read_text().strip()
        assert stat.S_IMODE((tmp_path / "api.key").stat().st_mode) == 0o600
        assert (
            f"a key for the HTTP API was made; it is in {tmp_path / 'api.key'}" in (tmp_path / "stderr.log").read_text()
        )
        url = await address(tmp_path)
        async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
            assert (await http.get("/v1/models")).status_code == 401
            asked = await http.get("/health/detailed", headers={"Authorization": f"Bearer {secret}"})
            assert asked.status_code == 200
            assert secret not in asked.text
    async with gateway(tmp_path):
        assert (tmp_path / "api.key").read_text().strip() == secret
        assert (tmp_path / "stderr.log").read_text().count("a key for the HTTP API was made") == 1
        assert secret not in str(await socket.call(tmp_path, {"verb": "status"}))
    found = await asyncio.to_thread(subprocess.run, ["grep", "-rl", "--exclude=api.key", secret, tmp_path])
    assert found.returncode == 1, "it is kept nowhere else"


async def test_s2_a_terminal_is_told_the_key_once(tmp_path: Path) -> None:
    async with Terminal(environment(tmp_path), "run", "--no-chat") as terminal:
        await terminal.until("the key of the HTTP API is ")
        await terminal.until("the gateway serves in")
        secret = (tmp_path / "api.key").read_text().strip()
        assert terminal.shown.count(secret) == 1


def test_s2_the_key_is_known_to_redaction_before_anything_is_told(tmp_path: Path) -> None:
    settings, told = main._with_key(tmp_path, HttpSettings())
    secret = settings.key.get_secret_value()
    assert secret == (tmp_path / "api.key").read_text().strip()
    assert secret not in told
    assert secret not in clean(f"a line with {secret} in it")


async def address(home: Path) -> str:
    """Where the gateway of this home listens, as its log says."""
    async with asyncio.timeout(10):
        while True:
            said = re.findall(r"the HTTP listener is at (http://[\d.:]+)", (home / "stderr.log").read_text())
            if said:
                return said[-1]
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("content", "mode", "words"),
    [
        ("", 0o600, "too short"),
        ("changeme\n", 0o600, "too short"),
        ("changeme-changeme-changeme-changeme\n", 0o600, "can be guessed"),
        ("3f9a1c7be0d24586a1b9c3d7e5f60218\n", 0o644, "chmod 600"),
        ("3f9a1c7be0d24586a1b9c3d7e5f60218\n", 0o640, "chmod 600"),
    ],
)
def test_s2_a_key_file_that_protects_nobody_is_refused(tmp_path: Path, content: str, mode: int, words: str) -> None:
    path = tmp_path / "api.key"
    path.write_text(content)
    path.chmod(mode)
    with pytest.raises(ConfigError, match=words) as refused:
        read_own(tmp_path)
    assert str(path) in str(refused.value)
    assert not content.strip() or content.strip() not in str(refused.value)


def test_s2_with_such_a_file_nobody_starts(tmp_path: Path) -> None:
    (tmp_path / "api.key").write_text("")
    (shown,) = tidings(tmp_path, (["run"], {}))
    assert (shown.code, shown.bound, shown.err.count("\n")) == (78, [], 1)
    assert "the next start makes a new one" in shown.err


def test_s2_the_key_file_is_made_once(tmp_path: Path) -> None:
    assert read_own(tmp_path) is None
    secret = make_own(tmp_path)
    assert read_own(tmp_path) == secret
    with pytest.raises(ConfigError, match="cannot be written"):
        make_own(tmp_path)
    assert read_own(tmp_path) == secret
