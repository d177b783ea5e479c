"""Builds the turn of a claimed message: its agent, its session and its input."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple

from tidings.core.agent import Agent, Heard, Turn
from tidings.core.allowances.allowances import Allowances
from tidings.core.context import Session
from tidings.core.desk.desk import Desk
from tidings.core.inbound import abilities, parties
from tidings.core.inbound.abilities import Can
from tidings.core.inbound.bots import Bots
from tidings.core.inbound.inbox import Claim
from tidings.core.inbound.parties import Parties
from tidings.core.people.people import People
from tidings.core.roles import Person
from tidings.core.types import Capabilities, Inbound, workspace_name


class Prepared(NamedTuple):
    agent: Agent
    turn: Turn
    session: Session
    # What the platform can do for this message; the session may promise less.
    can: Capabilities


class Turns:
    def __init__(
        self, bots: Bots, desk: Desk, can: Can, workspaces: Path, people: People, allowances: Allowances
    ) -> None:
        self._bots = bots
        self._desk = desk
        self._can = can
        self._workspaces = workspaces
        self._people = people
        self._allowances = allowances

    def parties(self, inbound: Inbound, person: Person | None = None) -> Parties:
        """For whom a run takes its slot; `person` is the one behind the message, if that is known already."""
        known = person or self._people.of_asker(inbound.asker)
        return parties.of(inbound, known.id, self._bots.find(inbound))

    def prepare(self, claimed: Claim, heard: Heard) -> Prepared:
        inbound = claimed.inbound
        bot = self._bots.find(inbound)
        folder = inbound.errand.workspace if inbound.errand else ""
        person = self._people.of_asker(inbound.asker)
        session = Session(
            run=claimed.run,
            conversation=inbound.conversation,
            sender=inbound.sender,
            bot=bot,
            target=inbound.target,
            can=abilities.promisable(inbound, self._can),
            workspace=self._workspaces / (folder or workspace_name(inbound.conversation)),
            person=person,
            permissions=self._people.permissions(person),
            began=inbound.began,
            place=inbound.place if inbound.began else None,
            errand=inbound.errand,
        )
        turn = Turn(
            run=claimed.run,
            attempt=claimed.attempt,
            bot=bot,
            message=inbound,
            desk=self._desk,
            history=claimed.history,
            checkpoint=claimed.checkpoint,
            verdicts=claimed.verdicts,
            goes_on=claimed.said is not None,
            preferences=claimed.preferences,
            heard=heard,
            rest=partial(self._allowances.rest, claimed.run, inbound, claimed.reservation),
        )
        return Prepared(self._bots.agents[bot], turn, session, abilities.of(inbound, self._can))
