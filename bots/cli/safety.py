"""Warns about settings that deviate from the safe defaults, with the line to change."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from pydantic import SecretStr

from tidings.bots.app.fencing import LOCAL, runs_commands
from tidings.bots.app.roster import ASSISTANT, Bot, Source, secrets_file
from tidings.bots.app.settings import SECRET, Loaded, parse
from tidings.core.agent import Effect
from tidings.core.errors import Unknown
from tidings.core.people.names import is_identity
from tidings.core.people.policy import REQUIRED
from tidings.core.roles import Permission, Role
from tidings.core.settings import Access, Section

Level = Literal["ok", "warn", "fail"]

# A service manager kills a process after about this time.
LONG_DRAIN_SECONDS = 80.0
LONG_RUN_SECONDS = 3600.0
REFERENCES = ("env:", "file:")


class Remark(NamedTuple):
    level: Level
    subject: str
    words: str


def source_of(loaded: Loaded, environment: Mapping[str, str]) -> Source:
    return Source(loaded.file, environment, parse(secrets_file(loaded.file), loaded.texts.secrets))


def remarks(
    loaded: Loaded, environment: Mapping[str, str], check_id: Callable[[str], None], is_group: Callable[[str], bool]
) -> Iterator[Remark]:
    """Judges by the settings alone, without asking any platform."""
    source = source_of(loaded, environment)
    yield from _written_secrets(loaded)
    yield from _listener(loaded.platforms.get("http"), source)
    yield from _ids(loaded, source, check_id, is_group)
    yield from _access(loaded.core.access, source)
    yield from _limits(loaded, source)
    if loaded.core.terminal.backend == "local":
        # Without a bot that runs commands, only the owner's schedules do.
        yield Remark("fail" if runs_commands(loaded) else "warn", "fence", LOCAL)
    for names, section in _accounts(loaded.platforms):
        yield from _platform(names, section, source)
    for name, bot in loaded.bots.items():
        yield from _bot(name, bot, loaded, source)


def is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _written_secrets(loaded: Loaded) -> Iterator[Remark]:
    """Warns about secrets in a file that other users can read."""
    found = [".".join(names) for names in _secrets_in(parse(loaded.file, loaded.texts.tidings))]
    if not found or not loaded.file.exists() or not loaded.file.stat().st_mode & 0o077:
        return
    mend = f"chmod 600 {loaded.file}, or move it into {secrets_file(loaded.file).name} beside it"
    yield Remark("fail", "secrets", f"{loaded.file}: other users can read {', '.join(found)}: {mend}")


def _secrets_in(table: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _secrets_in(value, (*above, name))
        elif isinstance(value, str) and value and SECRET.search(name) and not value.startswith(REFERENCES):
            yield (*above, name)


def _listener(http: Section | None, source: Source) -> Iterator[Remark]:
    host = getattr(http, "host", "127.0.0.1")
    if not is_local(host):
        words = (
            f"{source.place('http', 'host')} = {host!r} can be reached from outside, and speaks plain HTTP:"
            ' set host = "127.0.0.1", or let only a proxy with TLS reach it'
        )
        yield Remark("warn", "listener", words)
    if origins := getattr(http, "origins", ()):
        words = f"{source.place('http', 'origins')}: pages of {', '.join(origins)} may call the API from any browser"
        yield Remark("warn", "listener", f"{words}; origins = [] lets none")


def _ids(
    loaded: Loaded, source: Source, check_id: Callable[[str], None], is_group: Callable[[str], bool]
) -> Iterator[Remark]:
    access = loaded.core.access
    guests = Remark("warn", "access", "everyone in it may talk to the bot as a guest; to limit that, list people")
    for key in ("owners", "admins", "bots", "allow"):
        ids: tuple[str, ...] = getattr(access, key)
        whom = "bots" if key == "bots" else "people"
        person = Remark("fail", "access", f"{key} must be {whom}; list {whom}, or move it to allow")
        for number, id in enumerate(ids, start=1):
            place = f"{source.place('access', key)} #{number}"
            if fault := _fault(id, check_id):
                yield Remark("fail", "access", f"{place}: {fault}")
            elif is_group(id):
                remark = guests if key == "allow" else person
                yield remark._replace(words=f"{place}: {id} is a group: {remark.words}")


def _access(access: Access, source: Source) -> Iterator[Remark]:
    """Warns about settings by which nobody can get in, or by which people may do more than is usual."""
    if not (access.owners or access.admins or access.allow):
        if access.settings_only:
            words = f"{source.place('access', 'settings_only')} = true, and the settings name nobody"
            yield Remark("warn", "access", f"{words}: only the console is answered; name people, or set it to false")
        elif access.strangers == "ignore":
            words = f'{source.place("access", "strangers")} = "ignore", and the settings name nobody'
            remedy = 'admit people with: tidings people admit platform:ID, or set it to "pair"'
            yield Remark("warn", "access", f"{words}: strangers are not told how to get in; {remedy}")
    for permission, role in access.requires.items():
        usual = REQUIRED[permission]
        if not role.includes(usual):
            words = f"{source.place('access', 'requires')} gives {permission} to the role {role}, not only to {usual}"
            yield Remark("warn", "access", f"{words} and above; remove it if that is wrong")
        elif permission is Permission.TALK and role is not Role.GUEST:
            words = f'{source.place("access", "requires")}: talk = "{role}" means that guests get no answer'
            yield Remark("warn", "access", f"{words}, for example in admitted groups; remove it if that is wrong")


def _fault(id: str, check_id: Callable[[str], None]) -> str:
    if not is_identity(id) or "*" in id:
        return f'{id!r} is not an id and admits no one: write "platform:ID", the id that the bot tells strangers'
    try:
        check_id(id)
    except Unknown as error:
        return str(error)
    return ""


def _limits(loaded: Loaded, source: Source) -> Iterator[Remark]:
    limits = loaded.core.limits
    if limits.drain_seconds > LONG_DRAIN_SECONDS:
        words = f"{source.place('limits', 'drain_seconds')} = {limits.drain_seconds:g}: a service manager kills before"
        yield Remark("warn", "limits", f"{words}; set it below {LONG_DRAIN_SECONDS:g}")
    if limits.run_seconds > LONG_RUN_SECONDS:
        words = f"{source.place('limits', 'run_seconds')} = {limits.run_seconds:g} lets one run hold its chat for long"
        yield Remark("warn", "limits", f"{words}; the default is 600")
    if loaded.core.log.level == "debug":
        words = f'{source.place("log", "level")} = "debug" fills the disk and tells much; set it to "info"'
        yield Remark("warn", "log", words)


def _accounts(platforms: Mapping[str, Section]) -> Iterator[tuple[tuple[str, ...], Section]]:
    for name, section in platforms.items():
        yield (name,), section
        for account, below in getattr(section, "accounts", {}).items():
            yield (name, "accounts", account), below


def _platform(names: tuple[str, ...], section: Section, source: Source) -> Iterator[Remark]:
    subject = ".".join(names)
    is_used = any(isinstance(value, SecretStr) and value.get_secret_value() for _, value in section)
    for key in ("api_url", "gateway_url", "webhook_url"):
        address = urlsplit(str(getattr(section, key, "")))
        if is_used and address.scheme in ("http", "ws") and not is_local(address.hostname or ""):
            secure = {"http": "https", "ws": "wss"}[address.scheme]
            words = f"{source.place(*names, key)} sends the token in the clear: write {secure}://{address.netloc}"
            yield Remark("fail", subject, words)
    if is_used and getattr(section, "mentions", False):
        words = (
            f"{source.place(*names, 'mentions')} = true: anyone who steers the model can ping people; set it to false"
        )
        yield Remark("warn", subject, words)


def _bot(name: str, bot: Bot, loaded: Loaded, source: Source) -> Iterator[Remark]:
    if bot.chosen_agent != ASSISTANT:
        return
    subject, names = f"bot {name}", ("bots", name) if name in _several(loaded) else ("bot",)
    for choice in (bot, *bot.fallbacks):
        address = urlsplit(choice.base_url)
        if choice.api_key.get_secret_value() and address.scheme == "http" and not is_local(address.hostname or ""):
            words = f"{source.place(*names, 'base_url')} sends the key of {choice.model} in the clear"
            yield Remark("warn", subject, f"{words}: write https://{address.netloc}")
    if acting := sorted(_acting(bot)):
        words = f"{source.place(*names, 'approvals')}: it acts without asking with {', '.join(acting)}"
        yield Remark("warn", subject, f'{words}; all members can use them: set them to "ask" if that is wrong')
        if bot.approvals.trust_tainted:
            words = (
                f"{source.place(*names, 'approvals', 'trust_tainted')} = true: pages, files and quotes can make it act"
            )
            yield Remark("warn", subject, f"{words}; set it to false")
    if bot.fetch_hosts:
        words = f"{source.place(*names, 'fetch_hosts')}: web pages can make it reach {', '.join(bot.fetch_hosts)}"
        yield Remark("warn", subject, f"{words}, which is not public; fetch_hosts = [] closes that")
    if not bot.rails.enabled:
        words = f"{source.place(*names, 'rails', 'enabled')} = false: a run in circles goes on to its limits"
        yield Remark("warn", subject, f"{words}; set it to true")
    limits = bot.limits
    if not limits.requests or not (limits.tokens or limits.money):
        words = f"{source.place(*names, 'limits')}: one run may ask and spend without a limit; set requests and tokens"
        yield Remark("warn", subject, words)
    if limits.seconds >= loaded.core.limits.run_seconds:
        words = f"{source.place(*names, 'limits', 'seconds')} = {limits.seconds:g} is not below [limits] run_seconds"
        yield Remark("warn", subject, f"{words} = {loaded.core.limits.run_seconds:g}, so it cannot sum up at its end")


def _several(loaded: Loaded) -> Iterable[str]:
    """The bots with a `[bots.NAME]` table in the file."""
    several: dict[str, Any] = parse(loaded.file, loaded.texts.tidings).get("bots", {})
    return several


def _acting(bot: Bot) -> Iterator[str]:
    """The tools with an effect that act without asking."""
    from tidings.bots.assistant.settings import Mode
    from tidings.bots.assistant.tools.toolbox import EVERY, Toolbox
    from tidings.core.errors import ConfigError

    modes = bot.approvals.modes
    try:
        box = Toolbox(bot)
    except ConfigError:
        # A hosted agent has tools of its own; building a bot reports a tool that does not exist.
        yield from (name for name in bot.tools if modes.get(name, modes.get(EVERY)) is Mode.ALLOW)
        return
    acting = (tool.name for tool in box.tools if tool.effect is Effect.EFFECT)
    yield from (name for name in acting if box.standing(name).mode is Mode.ALLOW)
    yield from (f"{name}: {tool}" for name, server in bot.mcp.items() for tool in server.allow)
    servers = tuple(f"{name}." for name in bot.mcp)
    yield from (name for name, mode in modes.items() if mode is Mode.ALLOW and name.startswith(servers))
    if bot.mcp and modes.get(EVERY) is Mode.ALLOW:
        yield from (f"{name}.*" for name in bot.mcp)
