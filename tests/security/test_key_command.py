"""`tidings key`: a key for each client, made and revoked with and without a running gateway, and shown once."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import stat
from pathlib import Path

import pytest

from tests.security.command_lines import Shown, tidings
from tests.worlds.api import KEY, ApiWorld
from tests.worlds.world import KEYED, Echo
from tidings.adapters.api.keys import digest
from tidings.adapters.local.socket import LocalServer
from tidings.core.desk.people import Scope
from tidings.core.roles import OWNER
from tidings.core.store.lock import HomeLock

SECRET = re.compile(r"tdg_[A-Za-z0-9_-]{43}\n")
SCOPES = ", ".join(Scope)


async def keys(home: Path, *lines: str, **environment: str) -> list[Shown]:
    """`add|NAME` is `tidings key add NAME`."""
    return await asyncio.to_thread(tidings, home, *((["key", *line.split("|")], environment) for line in lines))


def stored(home: Path) -> bytes:
    return b"".join(path.read_bytes() for path in home.iterdir() if path.is_file() and path.name != "api.key")


# Each mistake, and what is said to it.
MISTAKES = {
    "add|laptop": "there is a key named laptop already; revoke it first, or choose another name",
    "add|owner": "there is a key named owner already; revoke it first, or choose another name",
    "add|a name": "'a name' cannot name a key: use up to 64 letters, digits, _, . and -",
    "add|other|--scope|everything": f"there is no scope 'everything'; there are: {SCOPES}",
    "add|other|--scope|chat|--scope|Chat": f"there is no scope 'Chat'; there are: {SCOPES}",
    "add|other|--person|nobody": "nobody is known as nobody",
    "add|other|--person|paper:9": "nobody is known as paper:9",
    "add|other|--bot|elsewhere": "there is no bot named 'elsewhere'; there are: BOT",
    "add|other|--target|a:b:c:d": "'a:b:c:d' is not a target; write platform:CHAT, platform:CHAT:THREAD or console",
    "revoke|nobody": "there is no key named nobody; list them with: tidings key list",
    "revoke|owner": "the owner's key is in the settings or in api.key in the home: change it there and restart",
}


def refused(words: str, bot: str) -> Shown:
    return Shown(1, "", f"tidings: {words.replace('BOT', bot)}\n", [])


async def test_without_a_gateway_on_a_home_that_is_not_there_yet(tmp_path: Path) -> None:
    home = tmp_path / "home"
    none_yet, made, listed = await keys(home, "list", "add|laptop|--scope|chat|--scope|notify|--scope|chat", "list")
    assert (none_yet.code, none_yet.out) == (0, "")
    assert "there is no key yet" in none_yet.err
    assert made.code == 0, made.err
    assert SECRET.fullmatch(made.out), "alone on its line, so that a script can take it"
    assert "it cannot be shown again" in made.err
    secret = made.out.strip()
    assert secret.encode() not in stored(home)
    assert digest(secret).encode() in stored(home)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (home, *home.iterdir())}
    assert {name: mode for name, mode in modes.items() if mode & 0o077} == {}
    assert re.fullmatch(r"laptop +the owner  chat notify  \d{4}-\d\d-\d\d\n", listed.out)
    *wrong, still = await keys(home, *MISTAKES, "list")
    assert wrong == [refused(words, "demo") for words in MISTAKES.values()]
    assert still.out == listed.out, "what was refused has changed nothing"
    # The next gateway knows it.
    async with ApiWorld(home, Echo()) as api, api.client(secret) as http:
        assert (await http.get("/v1/models")).status_code == 200
        assert (await http.post("/v1/runs", json={"input": "hi"})).status_code == 403
    assert await keys(home, "revoke|laptop") == [Shown(0, "the key of laptop no longer works\n", "", [])]
    async with ApiWorld(home, Echo()) as api, api.client(secret) as http:
        assert (await http.get("/v1/models")).status_code == 401


async def test_with_a_running_gateway_at_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with ApiWorld(tmp_path, Echo(), console=True) as api:
        made, *wrong, listed = await keys(tmp_path, "add|laptop", *MISTAKES, "list")
        assert SECRET.fullmatch(made.out), made.err
        assert wrong == [refused(words, "bot") for words in MISTAKES.values()]
        owner, laptop = listed.out.splitlines()
        assert owner.split() == ["owner", "the", "owner", *Scope]
        assert laptop.split()[:-1] == ["laptop", "the", "owner", "chat", "runs"]
        secret = made.out.strip()
        async with api.client(secret) as http:
            assert (await http.get("/v1/models")).status_code == 200
            assert (await http.post("/v1/runs", json={"input": "hi"})).status_code == 202
            assert (await http.post("/v1/notify", json={"target": "console", "text": "hi"})).status_code == 403
            assert [shown.code for shown in await keys(tmp_path, "revoke|laptop")] == [0]
            assert (await http.get("/v1/models")).status_code == 401
        await api.settled()
        assert secret not in caplog.text
        assert secret.encode() not in stored(tmp_path)


async def test_a_key_belongs_to_a_person_and_is_bound_with_and_without_a_gateway(tmp_path: Path) -> None:
    bound = "--scope|notify|--scope|chat|--target|paper:7|--target|paper:7:a%3Ab"
    async with ApiWorld(tmp_path, Echo(), console=True, platforms={"paper": KEYED}) as api:
        people = api.gateway.desk.people
        ann = await people.admit(OWNER, "paper:8", name="Ann")
        made, listed = await keys(tmp_path, f"add|ci|{bound}|--person|Ann|--bot|bot", "list|--json")
        secret = made.out.strip()
        async with api.client(secret) as http:
            assert (await http.post("/v1/notify", json={"target": "paper:7", "text": "hi"})).status_code == 202
            assert (await http.post("/v1/notify", json={"target": "paper:8", "text": "hi"})).status_code == 403
    found = {key["name"]: key for key in json.loads(listed.out)}
    assert (found["owner"]["person"], found["owner"]["id"]) == ("owner", "owner")
    (stored_key,) = people.keys()
    assert found["ci"]["id"] == stored_key.id, "people whom its client names are known under it"
    assert {name: found["ci"][name] for name in ("person", "holder", "scopes", "bots", "targets")} == {
        "person": ann.id,
        "holder": "Ann (paper:8)",
        "scopes": ["notify", "chat"],
        "bots": ["bot"],
        "targets": ["paper:7", "paper:7:a%3Ab"],
    }
    # The same without a gateway, by identity and by id.
    again, third, listed = await keys(
        tmp_path, f"add|by-identity|{bound}|--person|paper:8", f"add|by-id|--person|{ann.id}", "list"
    )
    assert (again.code, third.code) == (0, 0), again.err + third.err
    ci, by_identity, by_id = listed.out.splitlines()
    assert ci.startswith("ci ")
    assert "  Ann (paper:8)  notify chat  bot=bot target=paper:7 target=paper:7:a%3Ab  " in ci
    assert "  Ann (paper:8)  notify chat  target=paper:7 target=paper:7:a%3Ab  " in by_identity
    assert "  Ann (paper:8)  chat runs  " in by_id


async def test_somebody_blocked_gets_no_key(tmp_path: Path) -> None:
    async with ApiWorld(tmp_path, Echo(), console=True) as api:
        await api.gateway.desk.people.block(OWNER, "paper:8")
        (shown,) = await keys(tmp_path, "add|theirs|--person|paper:8")
    assert (shown.code, shown.out) == (1, "")
    assert "paper:8 is not admitted; admit them first" in shown.err


async def test_the_owners_key_is_listed_without_a_gateway_too(tmp_path: Path) -> None:
    (listed,) = await keys(tmp_path, "list", TIDINGS_HTTP__KEY=KEY)
    assert listed.out.split() == ["owner", "the", "owner", *Scope]


async def test_a_gateway_without_the_api_says_so(tmp_path: Path) -> None:
    async with LocalServer() as server, server.serving(tmp_path):
        (shown,) = await keys(tmp_path, "add|laptop")
    assert (shown.code, shown.out) == (1, "")
    assert "the gateway runs, but its HTTP API is off or not up: tidings status says more" in shown.err


async def test_a_home_that_somebody_else_holds_is_told(tmp_path: Path) -> None:
    lock = HomeLock(tmp_path)
    lock.take()
    try:
        assert [shown.code for shown in await keys(tmp_path, "add|laptop")] == [75]
    finally:
        lock.release()


async def test_help_says_what_each_scope_opens(tmp_path: Path) -> None:
    group, shown = await keys(tmp_path, "--help", "add|--help")
    assert all(word in group.out for word in ("add", "list", "revoke", "HTTP API"))
    for scope in Scope:
        assert re.search(rf"^  {scope} +\w", shown.out, re.MULTILINE), scope
    assert "[default: chat, runs]" in shown.out
    for line in (*group.out.splitlines(), *shown.out.splitlines()):
        assert len(line) <= 80, line
        assert "..." not in line or "COMMAND" in line, "nothing is cut off"
    assert list(tmp_path.iterdir()) == []
