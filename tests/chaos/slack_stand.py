"""Slack's stand in the chaos run: the real adapter over HTTP and sockets, and what is true in the paper's words."""

from __future__ import annotations

from typing import Any

from pydantic import SecretStr

from tests.chaos.discord_stand import source
from tests.chaos.stand import Dye, Dyed, Ground, Stand, dyed, keep_locks_in, posted
from tests.chaos.steps import Platform
from tests.simulators.paper.simulator import Call, Effect, Kind, Message, Odds
from tests.simulators.paper.wire import Ask, Upload
from tests.simulators.slack.simulator import APP_TOKEN, BOT_TOKEN, Channel, Person, SlackServer, text_of
from tests.simulators.slack.simulator import Call as SlackCall
from tests.simulators.slack.simulator import Message as SlackMessage
from tidings.adapters.shared.http_client import Timeouts
from tidings.adapters.slack.adapter import SlackAdapter
from tidings.adapters.slack.client import UNSURE, Client
from tidings.adapters.slack.settings import SlackAccount
from tidings.adapters.slack.streams import Growth
from tidings.core.adapter import Host
from tidings.core.types import Part

# A call that hangs is given up after this.
CALL_SECONDS = 2.0
# Real ones are a minute and five minutes, and then Slack says no more; nobody is away for so long here.
RETRY_SECONDS = (0.0, *[1.0] * 300)
# A stream that says more than this is ended, and grows on by edits.
STREAM_ROOM = 20
# Seconds from one piece of a stream to the next, and from edit to edit: answers are swift here, too.
FLUSH_SECONDS = 0.2
EDIT_SECONDS = 0.6

# Ids as the simulator gives them, in the order in which it is asked for them; the first person is the bot.
# A channel takes one message a second, so there are many.
ADA, *FRIENDS = (f"U{number:09d}" for number in range(2, 19))
DIRECTS = tuple(f"D{number:09d}" for number in range(1, 17))
CHANNELS = tuple(f"C{number:09d}" for number in range(1, 7))
# In each channel: one that a person has begun, and one below the bot's own words. Answers to whoever speaks outside
# of them have threads of their own. Here, and in the threads of direct messages, answers grow as native streams.
THREADS = {f"{kind}{chat}": chat for chat in CHANNELS for kind in ("theirs", "ours")}
DIRECT_THREADS = {f"direct{chat}": chat for chat in DIRECTS[::2]}
# What was said where nobody should have said it.
OUTSIDE = "outside of all threads"

METHODS = {
    "chat.postMessage": "post",
    "files.completeUploadExternal": "post",
    "chat.startStream": "stream_start",
    "chat.appendStream": "append",
    "chat.stopStream": "edit",
    "chat.update": "edit",
}
POSTING = ("post", "stream_start")


class SlackStand(Stand):
    @property
    def people(self) -> tuple[str, ...]:
        return (ADA, *FRIENDS)

    @property
    def places(self) -> tuple[tuple[str, str], ...]:
        threads = {**THREADS, **DIRECT_THREADS}
        return *((chat, "") for chat in (*DIRECTS, *CHANNELS)), *((chat, thread) for thread, chat in threads.items())

    def serve(self) -> Slack:
        return Slack()

    def build(self, account: str, address: str, host: Host) -> SlackAdapter:
        keep_locks_in(host)
        settings = SlackAccount(
            bot_token=SecretStr(BOT_TOKEN), app_token=SecretStr(APP_TOKEN), api_url=f"http://{address}/api/"
        )
        timeouts = Timeouts(read=CALL_SECONDS, upload=CALL_SECONDS)
        client = DyedClient(BOT_TOKEN, settings.api_url, timeouts=timeouts)
        limit = self.platform.limit
        growth = Growth(limit, limit - STREAM_ROOM, FLUSH_SECONDS, EDIT_SECONDS)
        return DyedAdapter(account, settings, host, growth=growth, client=client)


def slack(odds: Odds) -> SlackStand:
    return SlackStand(Platform("slack", Kind(readback=True, streaming="edits")), odds)


class DyedAdapter(Dyed, SlackAdapter):
    def _answered(self, part: Part) -> str:
        return f"{part.target.chat}:{part.target.reply_to}"


class DyedClient(Client):
    async def call(
        self, method: str, /, *, seconds: float | None = None, budget: str = "", token: str = "", **arguments: Any
    ) -> dict[str, Any]:
        seconds = CALL_SECONDS if seconds is None else min(seconds, CALL_SECONDS)
        return await super().call(method, seconds=seconds, budget=budget, token=token, **dyed(arguments))


class Slack(Ground[SlackServer]):
    """Messages are known as CHANNEL:TS."""

    def __init__(self) -> None:
        super().__init__(SlackServer(retry_seconds=RETRY_SECONDS))
        # Who speaks, by the chat.
        self._people: dict[str, Person] = {}
        # By our name for a thread: the ts of its first message; and back.
        self._roots: dict[str, str] = {}
        self._names: dict[tuple[str, str], str] = {}
        self._said: set[str] = set()

    async def _furnish(self) -> None:
        server = self._server
        server.limit_rates()
        ada = server.person("ada")
        friends = [server.person(f"friend{number}") for number in range(len(FRIENDS))]
        assert (ada.id, *(friend.id for friend in friends)) == (ADA, *FRIENDS)
        self._people = {friend.direct.id: friend for friend in friends}
        assert tuple(self._people) == DIRECTS
        channels = [server.channel(f"channel{number}") for number in range(len(CHANNELS))]
        assert tuple(channel.id for channel in channels) == CHANNELS
        self._people |= dict.fromkeys(CHANNELS, ada)
        for name, chat in {**THREADS, **DIRECT_THREADS}.items():
            author = server.main.bot.id if name.startswith("ours") else self._people[chat].id
            root = server.board.post(server.main, self._channel(chat), author, "A thread begins.", silent=True)
            self._roots[name] = root.ts
            self._names[chat, root.ts] = name

    def _channel(self, chat: str) -> Channel:
        return self._server.main.channels[chat]

    def says(self, text: str, *, key: str, chat: str, thread: str, account: str) -> str:
        words = text.replace("/", "!", 1) if text.startswith("/") else text
        mention = chat in CHANNELS and not thread.startswith("ours")
        root = self._roots[thread] if thread else ""
        name = self._people[chat].says(self._channel(chat), words, thread=root, mention=mention).id
        self._said.add(name)
        return name

    @property
    def confirmed(self) -> list[str]:
        """Without what the server tells of the bot's own words."""
        return [name for name in self._server.confirmed if name in self._said]

    @property
    def unconfirmed(self) -> list[str]:
        return [*self._server.unconfirmed, *(name for name in self._server.lost if name in self._said)]

    @property
    def effects(self) -> tuple[Effect, ...]:
        """What was done to messages that still stand there, and all else."""
        gone = {effect.message for effect in self._server.effects if effect.act == "delete"}
        return tuple(
            Effect(
                order=effect.order,
                at=effect.at,
                act=effect.act,
                account=effect.account,
                chat=effect.channel,
                thread=self._thread(effect.channel, effect.thread, ""),
                message=effect.message,
                text=source(text_of(effect)),
            )
            for effect in self._server.effects
            if effect.message not in gone and not self._is_root(effect.message)
        )

    @property
    def sent(self) -> tuple[Message, ...]:
        server = self._server
        posts = [effect for effect in server.effects if effect.act in ("post", "stream")]
        calls = [(call, call.channel) for call in server.calls() if METHODS.get(call.method) in POSTING]
        shown = [(post, post.channel) for post in posts if not self._is_root(post.message)]
        by_message = dict(posted(shown, calls))
        return tuple(
            self._message(message, _dye(by_message[message.id]))
            for message in server.sent
            if not self._is_root(message.id)
        )

    def calls(self) -> tuple[Call, ...]:
        """Those that concern a channel."""
        return tuple(
            Call(
                order=call.order,
                at=call.at,
                method=METHODS.get(call.method, call.method),
                account=call.account,
                ask=Ask(
                    chat=call.channel,
                    thread=self._thread(call.channel, call.thread, ""),
                    text=call.text,
                    key=_dye(call).key,
                    message_id=f"{call.channel}:{ts}" if (ts := call.params.get("ts")) else "",
                ),
                verdict=_verdict(call.verdict),
            )
            for call in self._server.calls()
            if call.channel
        )

    def _message(self, message: SlackMessage, dye: Dye) -> Message:
        return Message(
            id=message.id,
            account=message.account,
            chat=message.channel,
            thread=self._thread(message.channel, message.thread, dye.answered),
            text=source(text_of(message)),
            reply_to=dye.answered,
            key=dye.key,
            at=message.at,
            order=message.order,
            files=tuple(Upload(name=file.name, data=file.data) for file in message.files),
            streaming=message.streaming,
        )

    def _thread(self, channel: str, ts: str, answered: str) -> str:
        """By our name; what stands below the very message that it answers stands where that was said."""
        if not ts:
            return OUTSIDE if channel in CHANNELS else ""
        if f"{channel}:{ts}" == answered and channel in CHANNELS:
            return ""
        return self._names.get((channel, ts), ts)

    def _is_root(self, name: str) -> bool:
        channel, _, ts = name.partition(":")
        return (channel, ts) in self._names


def _dye(call: SlackCall) -> Dye:
    return Dye.read(call.params.get("dye"))


def _verdict(told: str) -> str:
    """Slack's own no is definite, unless it is unsure itself."""
    if told in ("ratelimited", "429"):
        return "429"
    is_word = told.replace("_", "").isalpha() and told not in ("ok", "gone", *UNSURE)
    return "400" if is_word else told
