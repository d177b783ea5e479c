"""S23: whatever a model is talked into fetching, only the public web is dialled."""

from __future__ import annotations

import asyncio
import ipaddress
import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import AddrInfoType
from hypothesis import given
from hypothesis import strategies as st

from tests.simulators.tools.web import Web, name_in_hello
from tests.worlds.fakes import FakeDesk
from tests.worlds.tool_bench import in_session
from tidings.bots.assistant.tools import guard
from tidings.bots.assistant.tools import web as fetching
from tidings.bots.assistant.tools.tool import Occasion, Tool, ToolError
from tidings.bots.assistant.tools.web import Fetcher
from tidings.core.agent import Effect
from tidings.core.errors import ConfigError

PUBLIC = "93.184.215.14"
PUBLIC_TOO = "2606:2800:21f:cb07:6820:80da:af6b:8b2c"
METADATA = "169.254.169.254"


@pytest.fixture
async def net() -> AsyncIterator[Web]:
    async with Web({"good.example": [(PUBLIC,)], "localhost": [("::1", "127.0.0.1")]}) as net:
        yield net


def fetcher(net: Web, *allowed: str, seconds: float = 20.0) -> Fetcher:
    return Fetcher(guard.allowed_hosts(allowed), seconds, net.look_up, net.open_socket)


async def refusal(net: Web, url: str, *allowed: str, seconds: float = 20.0) -> str:
    with pytest.raises(ToolError) as caught:
        await fetcher(net, *allowed, seconds=seconds).fetch(url)
    return str(caught.value)


REFUSED = (
    # Other ways than the web.
    *("file:///etc/passwd", "ftp://good.example/", "gopher://good.example:80/_x", "data:text/plain,x", "javascript:0"),
    *(
        "unix:///run/x.sock",
        "ws://good.example/",
        "//good.example/",
        "good.example",
        "/etc/passwd",
        "",
        "http://",
        "http:",
    ),
    # Private, as itself.
    *("http://127.0.0.1/", "http://127.255.255.254/", "http://0.0.0.0/", "http://0/", "http://10.0.0.1/"),
    *("http://172.16.0.1/", "http://192.168.1.1/", "http://100.64.0.1/", "http://169.254.169.254/latest/meta-data/"),
    *("http://198.18.0.1/", "http://224.0.0.1/", "http://255.255.255.255/", "http://192.0.0.192/"),
    *("http://[::]/", "http://[::1]/", "http://[fe80::1]/", "http://[fe80::1%25eth0]/", "http://[fe80::1%eth0]/"),
    *("http://[fc00::1]/", "http://[fd00:ec2::254]/", "http://[ff02::1]/", "http://[fec0::1]/"),
    # Private, inside another address: mapped, compatible, translated, tunnelled.
    *(
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[0:0:0:0:0:ffff:a9fe:a9fe]/",
        "http://[::127.0.0.1]/",
    ),
    *("http://[64:ff9b::a9fe:a9fe]/", "http://[64:ff9b::127.0.0.1]/", "http://[64:ff9b:1::7f00:1]/"),
    *(
        "http://[2002:7f00:1::]/",
        "http://[2002:a9fe:a9fe::1]/",
        "http://[2001:0:7f00:1::]/",
        "http://[::ffff:0:127.0.0.1]/",
    ),
    # Private, in the ways that old resolvers read.
    *("http://2130706433/", "http://017700000001/", "http://0x7f000001/", "http://0x7f.1/", "http://127.1/"),
    *("http://127.0.1/", "http://0177.0.0.1/", "http://0x7f.0.0.1/", "http://127.0.0.01/", "http://00000177.1/"),
    *(
        "http://127.0.0.1./",
        "http://127.1./",
        "http://0x7f.1./",
        "http://1.2.3.4.5/",
        "http://256.1.1.1/",
        "http://0x/",
    ),
    *("http://2852039166/", "http://0xa9fea9fe/", "http://0251.0376.0251.0376/", "http://good.example.0x7f/"),
    # Private, in letters that become digits and dots.
    *(
        "http://127。0。0。1/",
        "http://①②⑦.⓪.⓪.①/",
        "http://１２７.0.0.1/",
        "http://127%2e0%2e0%2e1/",
        "http://%31%32%37.0.0.1/",
    ),
    # What one parser reads differently from another.
    *(
        "http://a@b#@c",
        "http://good.example@127.0.0.1/",
        "http://127.0.0.1@good.example/",
        "http://user:pw@good.example/",
    ),
    *("http://:@good.example/", "http://good.example:80@127.0.0.1/", "http://good.example;@127.0.0.1/"),
    *("http://1.1.1.1 &@2.2.2.2# @3.3.3.3/", "http://good.example\\@127.0.0.1/", "http://127.0.0.1\\@good.example/"),
    *("http:\\\\127.0.0.1\\", "http:/\\127.0.0.1/", "http://good.example\\.evil.example/", "http:///127.0.0.1/"),
    *(
        "http://good.example\t@127.0.0.1/",
        "http://good\n.example/",
        "http://good .example/",
        "http://good.example\x00.evil/",
    ),
    *(
        "http://good%00.example/",
        "http://good.example%2f@127.0.0.1/",
        "http://good%2eexample/",
        "http://good.example%23/",
    ),
    *("http://[::1", "http://[::1]x/", "http://[::1]:80@good.example/", "http://[127.0.0.1]/", "http://[]/"),
    *(
        "http://good..example/",
        "http://.good.example/",
        "http://./",
        "http://../",
        "http://*/",
        "http://a,b/",
        "http://a$b/",
    ),
    *(
        "http://good.example../",
        f"http://{'a' * 64}.example/",
        f"http://{'a.' * 127}example/",
        "http://a\u00ad.example/",
    ),
    *("http://good.example/\ud800", f"http://good.example/{'a' * 4096}", "http://good.example/two words"),
    # Other ports.
    *("http://good.example:22/", "http://good.example:0/", "http://good.example:8080/", "https://good.example:6379/"),
    *("http://good.example:99999/", "http://good.example:80:80/", "http://good.example:x/", f"http://{PUBLIC}:25/"),
)


@pytest.mark.parametrize("url", REFUSED)
async def test_s23_an_address_that_is_not_of_the_public_web_is_refused_before_anything_is_looked_up(
    net: Web, url: str
) -> None:
    sentence = await refusal(net, url)
    assert (net.looked_up, net.dialled) == ([], [])
    assert sentence.endswith(".")
    assert "Error" not in sentence


async def test_s23_the_refusal_is_a_plain_sentence(net: Web) -> None:
    assert await refusal(net, "http://127.0.0.1/") == "127.0.0.1 is not a public address, so I may not fetch it."


LEADS_ASTRAY: tuple[tuple[str, ...], ...] = (
    ("127.0.0.1",),
    (METADATA,),
    ("10.1.2.3",),
    ("100.100.100.200",),
    ("::1",),
    ("fe80::1%eth0",),
    ("fd00::1",),
    ("::ffff:10.0.0.1",),
    ("64:ff9b::a00:1",),
    ("64:ff9b:1::a00:1",),
    ("2002:a00:1::",),
    ("0.0.0.0",),
    ("::",),
    ("239.1.1.1",),
    # One that is not public spoils the others, wherever it stands.
    (PUBLIC, "127.0.0.1"),
    ("10.0.0.1", PUBLIC),
    (PUBLIC_TOO, "fc00::1"),
    ("not an address",),
    (),
)


@pytest.mark.parametrize("answers", LEADS_ASTRAY, ids=",".join)
async def test_s23_a_name_with_any_address_that_is_not_public_is_never_dialled(
    net: Web, answers: tuple[str, ...]
) -> None:
    net.names["inside.example"] = [answers]
    sentence = await refusal(net, "http://inside.example/")
    assert net.dialled == []
    # Where it leads is not told.
    assert not any(answer in sentence for answer in answers)


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST", "localhost.", "ⓛocalhost"])
async def test_s23_localhost_is_refused_however_it_is_written(net: Web, name: str) -> None:
    assert "not at a public address" in await refusal(net, f"http://{name}/")
    assert net.dialled == []


async def test_s23_a_name_that_nobody_knows_is_told(net: Web) -> None:
    assert await refusal(net, "http://nowhere.example/") == (
        "there is no host nowhere.example, or its name cannot be looked up now."
    )


@pytest.mark.parametrize("address", [PUBLIC, PUBLIC_TOO, "1.1.1.1", "100.63.255.255", "100.128.0.1", "172.32.0.1"])
def test_s23_what_is_public_is_not_taken_for_private(address: str) -> None:
    assert guard.is_public(address)


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_s23_nothing_that_python_counts_as_private_is_public_for_us(address: ipaddress.IPv4Address) -> None:
    if guard.is_public(str(address)):
        assert address.is_global
        assert not address.is_multicast
        assert not address.is_reserved


async def test_s23_a_public_page_is_fetched_from_the_address_that_was_checked(net: Web) -> None:
    net.page("/a", "Hello.")
    assert await fetcher(net).fetch("http://good.example/a?b=c#d") == (
        "Status: 200 OK\nAddress: http://good.example/a?b=c\nType: text/plain\n\nHello."
    )
    assert net.dialled == [(PUBLIC, 80)]
    [asked] = net.asked
    assert (asked.host, asked.path) == ("good.example", "/a?b=c")
    assert asked.headers["User-Agent"] == "tidings"


async def test_s23_a_name_that_changes_its_answer_is_looked_up_once_and_dialled_where_it_was_checked(net: Web) -> None:
    net.names["rebinding.example"] = [(PUBLIC,), ("127.0.0.1",)]
    net.page("/", "Hello.")
    assert "Hello." in await fetcher(net).fetch("http://rebinding.example/")
    assert (net.looked_up, net.dialled) == (["rebinding.example"], [(PUBLIC, 80)])


async def test_s23_a_name_that_changes_its_answer_is_checked_again_when_it_redirects_to_itself(net: Web) -> None:
    net.names["rebinding.example"] = [(PUBLIC,), ("127.0.0.1",)]
    net.moved("/", "/again")
    assert "not at a public address" in await refusal(net, "http://rebinding.example/")
    assert net.dialled == [(PUBLIC, 80)]


async def test_s23_an_address_that_was_not_checked_gets_no_socket(net: Web) -> None:
    opened = fetching.only((PUBLIC, PUBLIC_TOO), net.open_socket)

    def info(address: str) -> AddrInfoType:
        return (2, 1, 6, "", (address, 80))

    opened(info(PUBLIC)).close()
    for address in ("127.0.0.1", METADATA, "::1", "93.184.215.15"):
        with pytest.raises(PermissionError):
            opened(info(address))
    assert net.dialled == [(PUBLIC, 80)]


@pytest.mark.parametrize(
    "location",
    [
        f"http://{METADATA}/latest/meta-data/iam/security-credentials/",
        f"//{METADATA}/",
        "http://localhost/",
        "http://127.0.0.1/",
        "http://[::1]/",
        "http://0x7f.1/",
        "http://good.example:22/",
        "http://user@good.example/",
        "http://good.example\\@127.0.0.1/",
        "file:///etc/passwd",
        "gopher://good.example/",
        "http://[",
    ],
)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_s23_a_redirect_is_judged_like_any_address(net: Web, status: int, location: str) -> None:
    net.moved("/", location, status)
    await refusal(net, "http://good.example/")
    assert net.dialled == [(PUBLIC, 80)]
    assert len(net.asked) == 1


async def test_s23_three_redirects_are_followed_and_a_fourth_is_not(net: Web) -> None:
    net.names["other.example"] = [("1.1.1.1",)]
    for number in range(4):
        net.moved(f"/{number}", f"//other.example/{number + 1}")
    net.page("/4", "At last.")
    told = await fetcher(net).fetch("http://good.example/1")
    assert "Address: http://other.example/4\n" in told
    assert told.endswith("At last.")
    assert "moved more than 3 times" in await refusal(net, "http://good.example/0")
    assert net.dialled == [(PUBLIC, 80), *3 * [("1.1.1.1", 80)]] * 2


async def test_s23_no_cookie_is_kept_from_one_page_to_the_next(net: Web) -> None:
    net.page("/", status=302, Location="/next", Set_Cookie="a=b; Path=/")
    net.page("/next", "Hello.")
    await fetcher(net).fetch("http://good.example/")
    assert [{"Cookie", "Authorization", "Referer"} & set(asked.headers) for asked in net.asked] == [set(), set()]


async def test_s23_a_proxy_in_the_environment_is_not_used(net: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1/")
    net.page("/", "Hello.")
    assert "Hello." in await fetcher(net).fetch("http://good.example/")
    assert net.dialled == [(PUBLIC, 80)]


async def test_s23_a_secure_server_is_asked_by_its_name_at_the_checked_address(net: Web) -> None:
    heard: list[str | None] = []

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await name_in_hello(reader))
        writer.close()

    async with await asyncio.start_server(hear, "127.0.0.1", 0) as listener:
        net.port = listener.sockets[0].getsockname()[1]
        assert "good.example cannot be reached" in await refusal(net, "https://good.example/")
    assert heard == ["good.example"]
    assert net.dialled == [(PUBLIC, 443)]


async def call(tool: Tool, url: str) -> str:
    with in_session():
        result = await tool.act(json.dumps({"url": url}), Occasion(FakeDesk(), "call"))
    return result.text


@pytest.mark.parametrize("entry", ["127.0.0.1", "localhost", " LocalHost. "])
async def test_s23_a_host_that_the_settings_name_is_fetched_with_everything_real(net: Web, entry: str) -> None:
    """D9: an allowlist key permits named hosts, and these alone."""
    net.page("/", "Hello from inside.")
    host = entry.strip().lower().removesuffix(".")
    [tool] = fetching.tools((entry,))
    assert "Hello from inside." in await call(tool, f"http://{host}:{net.port}/")
    with pytest.raises(ToolError):
        await call(tool, f"http://127.0.0.2:{net.port}/")


async def test_s23_nothing_inside_is_fetched_where_the_settings_name_nothing(net: Web) -> None:
    [tool] = fetching.TOOLS
    for host in ("127.0.0.1", "localhost"):
        with pytest.raises(ToolError):
            await call(tool, f"http://{host}:{net.port}/")
        with pytest.raises(ToolError, match="is not (at )?a public address"):
            await call(tool, f"http://{host}/")
    assert net.asked == []


async def test_s23_a_host_that_is_named_opens_no_door_to_another(net: Web) -> None:
    net.names |= {"nas.example": [("10.0.0.5",)], "sub.nas.example": [("10.0.0.6",)]}
    net.moved("/", "http://sub.nas.example/")
    assert "sub.nas.example is not at a public address" in await refusal(net, "http://nas.example:8080/", "nas.example")
    assert "10.0.0.5 is not a public address" in await refusal(net, "http://10.0.0.5/", "nas.example")
    assert "user name" in await refusal(net, "http://a@nas.example/", "nas.example")
    assert net.dialled == [("10.0.0.5", 8080)]


async def test_s23_a_port_that_is_named_with_a_host_is_the_only_one(net: Web) -> None:
    net.names["nas.example"] = [("10.0.0.5",)]
    net.page("/", "Hello.")
    assert "Hello." in await fetcher(net, "nas.example:8080").fetch("http://nas.example:8080/")
    assert "only the ports" in await refusal(net, "http://nas.example:8081/", "nas.example:8080")
    assert "not at a public address" in await refusal(net, "http://nas.example/", "nas.example:8080")


@pytest.mark.parametrize(
    "entry", ["", "http://nas.example", "nas.example/path", "a@b", "*.example", "10.0.0.0/8", "0x7f.1"]
)
def test_s23_a_setting_that_names_no_host_is_refused(entry: str) -> None:
    with pytest.raises(ConfigError, match="fetch_hosts"):
        fetching.tools((entry,))


@pytest.mark.parametrize("entry", ["::1", "[::1]", "[::1]:8080", "fd00::5", "münchen.example"])
def test_s23_a_setting_may_name_any_kind_of_host(entry: str) -> None:
    assert len(guard.allowed_hosts((entry,))) == 1


def test_s23_what_is_fetched_is_labelled_as_written_by_others() -> None:
    [tool] = fetching.TOOLS
    assert (tool.name, tool.effect, tool.untrusted) == ("fetch_url", Effect.IDEMPOTENT, True)
