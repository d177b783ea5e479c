"""Bots: which agent answers a message, by name, by the rules of the settings, or by default."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tidings.core.agent import Agent
from tidings.core.busy import Busy
from tidings.core.settings import Rule
from tidings.core.types import Asker, Inbound, Origin


class _Now(NamedTuple):
    agents: Mapping[str, Agent]
    default: str
    rules: Sequence[Rule]
    # By the name of the bot.
    busy: Mapping[str, Busy]


# Returns everything that the settings may call a person: the stored id and all identities.
Called = Callable[[Asker | None], Sequence[str]]


class Bots:
    """The present bots; every part of the gateway shares this object, also after a reload."""

    def __init__(
        self,
        agents: Mapping[str, Agent],
        default: str,
        rules: Sequence[Rule] = (),
        called: Called = lambda asker: (),
        busy: Mapping[str, Busy] = {},
    ) -> None:
        self._called = called
        self.renew(agents, default, rules, busy)

    def renew(
        self,
        agents: Mapping[str, Agent],
        default: str,
        rules: Sequence[Rule] = (),
        busy: Mapping[str, Busy] = {},
    ) -> None:
        # Replaced as a whole, because the store's thread reads it too.
        self._now = _Now(agents, default, rules, busy)

    @property
    def agents(self) -> Mapping[str, Agent]:
        return self._now.agents

    @property
    def default(self) -> str:
        return self._now.default

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all bots, the default first."""
        now = self._now
        return (now.default, *sorted(name for name in now.agents if name != now.default))

    def find(self, inbound: Inbound) -> str:
        """The bot that the sender named, otherwise that of the first matching rule, otherwise the default."""
        now = self._now
        if inbound.bot in now.agents:
            return inbound.bot
        if not now.rules:
            return now.default
        # Work on a card has no chat of its own; the rules of the asker's chat apply.
        asked = inbound.asker if inbound.target.adapter == Origin.CARD else None
        rule = self._first(now, asked or inbound)
        return rule.bot if rule else now.default

    def busy_mode_of(self, inbound: Inbound) -> Busy | None:
        """The busy mode of the first matching rule that has one, otherwise that of the bot; None without either."""
        now = self._now
        for rule in now.rules:
            if rule.busy and _holds(rule, inbound) and self._is_for(rule, inbound):
                return rule.busy
        return now.busy.get(self.find(inbound))

    def rule_for(self, said: Inbound | Asker) -> Rule | None:
        """The first rule with a bot that matches the place and the person of this message."""
        return self._first(self._now, said)

    def _first(self, now: _Now, said: Inbound | Asker) -> Rule | None:
        present = (rule for rule in now.rules if rule.bot in now.agents)
        return next((rule for rule in present if _holds(rule, said) and self._is_for(rule, said)), None)

    def _is_for(self, rule: Rule, said: Inbound | Asker) -> bool:
        """Tells whether a rule is for the person who asked; an errand is for the person behind it."""
        if not rule.person:
            return True
        return rule.person in self._called(said if isinstance(said, Asker) else said.asker)


def _holds(rule: Rule, said: Inbound | Asker) -> bool:
    # Rules may name a moved chat by its first id or by its present one.
    began, now = said.conversation, said.place or said.target
    return (
        rule.platform in ("", now.adapter)
        and rule.account in ("", now.account)
        and rule.server in ("", now.server)
        and rule.chat in ("", began.chat, now.chat)
        and rule.thread in ("", began.thread, now.thread)
    )
