"""Seeded bugs in the assistant: answers that only look whole, tools that act too freely or too early, silent halts.

The assistant is imported by who becomes one of these, and by nobody else: its library takes seconds.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.chaos.mutation_seams import swap
from tidings.core.agent import Event, OutcomeKind, TextDelta

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse, ToolCallPart

    from tidings.bots.app.reload import Reloading
    from tidings.bots.assistant.ask import Answer, Asking, Piece, Question
    from tidings.bots.assistant.models import Built
    from tidings.bots.assistant.run import Work
    from tidings.bots.assistant.settings import Assistant as Settings
    from tidings.bots.assistant.settings import ModelChoice
    from tidings.bots.assistant.tools.policy import Refusal
    from tidings.bots.assistant.tools.tool import Occasion, Tool
    from tidings.bots.assistant.tools.toolbox import Toolbox
    from tidings.bots.assistant.turnstile import Turnstile
    from tidings.bots.assistant.use_tools import Round, Using
    from tidings.core.context import Session
    from tidings.core.desk.desk import Desk
    from tidings.core.roles import Permission, Role
    from tidings.core.types import Asker, Errand


def stream_that_stops_is_whole() -> None:
    """Whoever hangs up in the middle of a sentence has finished it."""
    from tidings.bots.assistant.ask import Asking

    real = Asking._checked

    def checked(self: Asking, response: ModelResponse, built: Built) -> Answer:
        details = {"finish_reason": "stop", **(response.provider_details or {})}
        return real(self, replace(response, provider_details=details), built)

    swap(Asking, "_checked", checked)


def refusal_is_an_answer() -> None:
    """What the provider holds against us is said to the person as if the model had said it."""
    from pydantic_ai.messages import ModelResponse, TextPart

    from tidings.bots.assistant.ask import Answer, Asking, Kind, Unanswered

    real = Asking._try

    async def try_(self: Asking, built: Built, question: Question, streams: bool) -> AsyncGenerator[Piece, None]:
        try:
            async for piece in real(self, built, question, streams):
                yield piece
        except Unanswered as unanswered:
            if unanswered.kind is not Kind.FINAL:
                raise
            yield TextDelta(unanswered.sentence)
            yield Answer(ModelResponse(parts=[TextPart(unanswered.sentence)], finish_reason="stop"), built)

    swap(Asking, "_try", try_)


def empty_answer_completes() -> None:
    """Nobody looks whether there is a word in it."""
    from tidings.bots.assistant.ask import Answer, Asking, Kind, Unanswered

    real = Asking._checked

    def checked(self: Asking, response: ModelResponse, built: Built) -> Answer:
        try:
            return real(self, response, built)
        except Unanswered as unanswered:
            if unanswered.kind is not Kind.EMPTY:
                raise
            return Answer(response, built)

    swap(Asking, "_checked", checked)


def words_said_again_after_a_break() -> None:
    """A second try begins behind the words of the first."""
    from tidings.bots.assistant.ask import Asking, Kind, Unanswered

    real = Asking._ask_one

    async def ask_one(self: Asking, choice: ModelChoice, question: Question) -> AsyncGenerator[Piece, None]:
        try:
            async for piece in real(self, choice, question):
                yield piece
        except Unanswered as unanswered:
            if unanswered.kind is not Kind.BROKEN_OFF:
                raise
            async for piece in real(self, choice, question):
                yield piece

    swap(Asking, "_ask_one", ask_one)


def tool_that_nobody_named() -> None:
    """Whatever the model can name it may use."""
    from tidings.bots.assistant.settings import Mode
    from tidings.bots.assistant.tools.toolbox import Standing, Toolbox

    real = Toolbox.find

    def find(self: Toolbox, name: str) -> Tool | Refusal:
        return self._tools.get(name) or self._closed.get(name) or real(self, name)

    def standing(self: Toolbox, name: str) -> Standing:
        return self._standing.get(name) or Standing(Mode.ALLOW)

    swap(Toolbox, "find", find)
    swap(Toolbox, "standing", standing)


def toolbox_forgets_the_role() -> None:
    """Everybody who may talk has what the settings name done for them."""
    from tidings.bots.assistant import approval
    from tidings.bots.assistant.tools.toolbox import Toolbox

    real = Toolbox.find

    def find(self: Toolbox, name: str) -> Tool | Refusal:
        return self._tools.get(name) or real(self, name)

    def barred(session: Session, desk: Desk, needs: Permission) -> Role | None:
        return None

    swap(Toolbox, "find", find)
    swap(approval, "barred", barred)


def run_keeps_the_role_it_began_with() -> None:
    """A person's role is looked at when their run begins, and holds until its end."""
    from tidings.bots.assistant import approval
    from tidings.bots.hosted import tool_gate

    def barred(session: Session, desk: Desk, needs: Permission) -> Role | None:
        return None if needs in session.permissions else session.person.role

    swap(approval, "barred", barred)
    swap(tool_gate, "barred", barred)


def model_changes_what_others_planned() -> None:
    """A tool does not look for whom the work was begun."""
    from tidings.bots.assistant.tools import processes, schedules

    def may_change(asker: Asker | None, occasion: Occasion) -> bool:
        return True

    swap(schedules, "may_change", may_change)
    swap(processes, "may_change", may_change)


def tool_acts_before_it_is_stored() -> None:
    """Told of when all is done: a crash in between leaves an act that nobody knows of."""
    from tidings.bots.assistant.use_tools import Using

    real = Using.use

    async def use(
        self: Using, calls: Sequence[ToolCallPart], into: Round, *, approved: bool = False
    ) -> AsyncGenerator[Event, None]:
        for event in [event async for event in real(self, calls, into, approved=approved)]:
            yield event

    swap(Using, "use", use)


def others_words_unfenced() -> None:
    """What a stranger wrote stands beside what the person said, and looks the same."""
    from tidings.bots.assistant import use_tools as assistant_use_tools

    def fence(text: str, source: str) -> str:
        return text

    swap(assistant_use_tools, "fence", fence)


def first_call_ends_the_answer() -> None:
    """The words before a tool are taken for all there is to say."""
    from tidings.bots.assistant.run import Work

    async def use_tools(self: Work, response: ModelResponse | None) -> AsyncGenerator[Event, None]:
        for event in self._end(OutcomeKind.COMPLETED, ""):
            yield event

    swap(Work, "_use_tools", use_tools)


def halt_without_a_word() -> None:
    """A guard rail that only the log knows of."""
    from tidings.bots.assistant.run import Work

    def halt(self: Work, sentence: str, reason: str) -> list[Event]:
        return self._end(OutcomeKind.HALTED, reason)

    swap(Work, "_halt", halt)


def fence_reads_a_text_again_and_again() -> None:
    """From each opening sign it looks through all the others."""
    from tidings.bots.assistant import prompt

    between = r"[^\w>]*"
    swap(prompt, "_FENCE", re.compile(rf"[<\ufe64\uff1c](?={between}{between.join('untrusted')})", re.IGNORECASE))


def people_bear_the_mark() -> None:
    """What a person typed is signed like a line of the gateway's."""
    from tidings.bots.assistant import prompt

    def bare(text: str) -> str:
        return text

    swap(prompt, "bare", bare)


def errand_knows_every_server() -> None:
    """Who was given some tools still names all servers of them for the next."""
    from tidings.bots.assistant.agent import Assistant

    real = Assistant.settings_for

    def settings_for(self: Assistant, errand: Errand | None) -> Settings:
        return real(self, errand).model_copy(update={"mcp": self._settings.mcp})

    swap(Assistant, "settings_for", settings_for)


def turns_prepared_all_at_once() -> None:
    """Everybody passes the turnstile in the same round of the loop."""
    from tidings.bots.assistant.turnstile import Turnstile

    async def enter(self: Turnstile) -> None:
        return

    swap(Turnstile, "enter", enter)


def turnstile_without_an_order() -> None:
    """Whoever came last passes first."""
    from tidings.bots.assistant.turnstile import Turnstile

    real = Turnstile._turn

    def turn(self: Turnstile) -> None:
        self._places.reverse()
        real(self)
        self._places.reverse()

    swap(Turnstile, "_turn", turn)


def libraries_looked_through_again() -> None:
    """The garbage collector goes through everything that was imported, every time."""
    from tidings.bots.app import agents
    from tidings.bots.app.reload import Reloading

    async def prepare(self: Reloading) -> None:
        await agents.prepare(tuple(self._staff.agents.values()))

    swap(Reloading, "_prepare", prepare)
