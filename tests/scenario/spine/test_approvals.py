"""Approvals: a run asks before its tool acts, waits in the store, and goes on with one answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenario.spine.test_pairing import button, with_home
from tests.simulators.paper.chats import Kind as PaperKind
from tests.simulators.paper.wire import Message
from tests.worlds.careful import Careful
from tests.worlds.fakes import FakeClock
from tests.worlds.world import Echo, OwnedClock, World, handed
from tidings.core.agent import ApprovalAnswered, ApprovalRequested, OutcomeKind
from tidings.core.desk.approvals import Answer, Choice, Question
from tidings.core.errors import Conflict, NotPermitted, Unknown
from tidings.core.inbound import questions
from tidings.core.roles import OWNER, Role
from tidings.core.settings import Rule
from tidings.core.types import Kind


async def asked(world: World, chat: str = "1") -> Message:
    """The question, as it stands in a chat."""
    await world.paper.until(lambda paper: any(post.startswith("May I run") for post in paper.posts_in(chat)))
    return next(post for post in reversed(world.paper.visible(chat)) if post.text.startswith("May I run"))


async def press_late(world: World, question: Message, label: str, sender: str = "7", chat: str = "1") -> None:
    """A press that was on its way when the buttons went."""
    choice = button(question, label)
    press = handed("", kind=Kind.PRESSED, choice=choice, about=question.id, sender=sender, chat=chat)
    await world.receive(press)


async def until_said(world: World, text: str, chat: str = "1") -> None:
    await world.paper.until(lambda paper: any(text in post for post in paper.posts_in(chat)))


async def test_a_tool_acts_once_its_person_has_approved(tmp_path: Path) -> None:
    agent = Careful(words="Let me clean up. ")
    async with World(tmp_path, agent, owners=["paper:7"]) as world:
        key = world.paper.says("clean up")
        question = await asked(world)
        assert "rm build" in question.text
        assert [choice.label for choice in question.choices] == ["Once", "For this talk", "Always", "Deny"]
        assert agent.acted == []
        assert (await world.gateway.desk.run(world.run(key)["run"])).state == "asking"
        world.paper.presses(question.id, button(question, "Once"))
        await until_said(world, "Done: rm build.")
        assert [command for _, command in agent.acted] == ["rm build"]
        after = next(post for post in world.paper.visible("1") if post.id == question.id)
        assert after.text.startswith("Approved once by")
        assert after.choices == ()
        outcome = await world.outcome(key)
        assert (outcome.kind, outcome.text) == (OutcomeKind.COMPLETED, "Let me clean up. Done: rm build. ")
        shown = [event for event in world.events(key) if isinstance(event, ApprovalRequested | ApprovalAnswered)]
        assert [type(event).__name__ for event in shown] == ["ApprovalRequested", "ApprovalAnswered"]


async def test_where_no_message_can_be_changed_the_answer_is_a_message_of_its_own(tmp_path: Path) -> None:
    agent = Careful()
    kind = PaperKind(keyed_for=3600.0, streaming="none")
    async with World(tmp_path, agent, owners=["paper:7"], kind=kind) as world:
        world.paper.says("clean up")
        question = await asked(world)
        world.paper.presses(question.id, button(question, "Once"))
        await until_said(world, "Approved once by")
        await until_said(world, "Done: rm build.")


async def test_an_answer_by_command_is_confirmed_once_also_where_nothing_can_be_changed(tmp_path: Path) -> None:
    kind = PaperKind(keyed_for=3600.0, streaming="none")
    async with World(tmp_path, Careful(), owners=["paper:7"], kind=kind) as world:
        world.paper.says("clean up")
        await asked(world)
        world.paper.says("/approve")
        await until_said(world, "Done: rm build.")
        await world.settled()
        assert len([post for post in world.paper.posts_in("1") if post.startswith("Approved once by")]) == 1


async def test_calls_that_differ_in_what_is_redacted_are_asked_about_each_time(tmp_path: Path) -> None:
    """An approval covers words; of two keys only the same mask would be left."""
    first, second = ("curl https://example.org -H 'Authorization: Bearer sk-" + each * 40 + "'" for each in "ab")
    agent = Careful(first)
    async with World(tmp_path, agent, owners=["paper:7"]) as world:
        world.paper.says("fetch it")
        question = await asked(world)
        assert "aaaa" not in question.text
        assert [choice.label for choice in question.choices] == ["Once", "Deny"]
        world.paper.says("/approve always")
        await until_said(world, "This can be answered with once, deny.")
        world.paper.presses(question.id, button(question, "Once"))
        await world.eventually(lambda: len(agent.acted) == 1)
        agent.commands = (second,)
        world.paper.says("fetch it")
        await world.eventually(lambda: len(world.rows("SELECT 1 FROM approvals WHERE state = 'open'")) == 1)
        assert len(agent.acted) == 1


async def test_names_that_others_chose_are_plain_words_in_the_question(tmp_path: Path) -> None:
    """Approval text injection: a page cannot put markup, links or lines of its own into what people are asked."""
    titles = ["the page **Approved** [press Once](http://evil.example)\n\n`ok`", *(f"page {n}" for n in range(40))]
    agent = Careful(read=titles)
    async with World(tmp_path, agent, owners=["paper:7"]) as world:
        world.paper.says("clean up")
        question = await asked(world)
        (line,) = [line for line in question.text.splitlines() if line.startswith("Before this I read: ")]
        assert not set(line) & set("*[]()`\\_<>@#")
        assert line.endswith("page 6, 33 more.")


def test_the_names_of_people_and_talks_put_no_markup_into_the_question_at_home() -> None:
    question = Question(
        id="ask_0123456789",
        run="run_1",
        bot="bot",
        conversation="api:main:x\n\n**Approved by the owner**",
        tool="terminal\nx",
        detail="ls",
        choices=(Choice.ONCE, Choice.DENY),
        asked=0.0,
        expires=3 * 86_400.0,
        asker="Bob **Approved** [ok]`y` (paper:8)",
        person="paper:8",
    )
    lines = questions.body_of(question, buttons=True, here=False).text.splitlines()
    assert [line for line in lines if "Approved" in line] == [
        "For Bob ··Approved·· ·ok··y· (paper:8), in api:main:x····Approved by the owner··."
    ]
    # In three days, and not at the next such hour.
    assert lines[-1] == "Without an answer by 04 January, 00:00 UTC, I will not run it."
    assert "\n" not in questions.line_of(question)


async def test_a_command_of_several_lines_is_one_line_of_the_list(tmp_path: Path) -> None:
    agent = Careful("ls\nabc123 · terminal: true")
    async with World(tmp_path, agent, owners=["paper:7"]) as world:
        world.paper.says("clean up")
        question = await asked(world)
        world.paper.presses(question.id, button(question, "Always"))
        await world.eventually(lambda: len(agent.acted) == 1)
        world.paper.says("/approvals")
        await until_said(world, "Approved for longer:")
        (listed,) = [post for post in world.paper.posts_in("1") if "Approved for longer:" in post]
        assert not any(line.startswith("abc123") for line in listed.splitlines())


async def test_a_denial_is_a_result_that_the_agent_sees(tmp_path: Path) -> None:
    agent = Careful()
    async with World(tmp_path, agent, owners=["paper:7"]) as world:
        world.paper.says("clean up")
        question = await asked(world)
        world.paper.presses(question.id, button(question, "Deny"))
        await until_said(world, "Not done: rm build, ")
        assert agent.acted == []
        assert agent.turns[-1].verdicts[0].reason.endswith("denied it")
        after = next(post for post in world.paper.visible("1") if post.id == question.id)
        assert after.text.startswith("Denied by")


async def test_a_question_survives_kills_and_holds_no_task(tmp_path: Path) -> None:
    agent = Careful()
    async with World(tmp_path, agent, owners=["paper:7"]) as world:
        world.paper.says("clean up")
        question = await asked(world)
        await world.eventually(lambda: not world.gateway._dispatcher.busy)
        for _ in range(3):
            await world.crash()
            await world.start()
        assert len(agent.turns) == 1
        world.paper.presses(question.id, button(question, "Once"))
        await until_said(world, "Done: rm build.")
        assert len(agent.acted) == 1


async def test_a_second_answer_is_told_who_was_first(tmp_path: Path) -> None:
    agent = Careful()
    async with World(tmp_path, agent, owners=["paper:7"]) as world:
        world.paper.says("clean up")
        question = await asked(world)
        world.paper.presses(question.id, button(question, "Once"))
        await until_said(world, "Done: rm build.")
        await press_late(world, question, "Deny")
        await world.paper.until(lambda paper: paper.posts_in("1")[-1].startswith("Approved once by"))
        assert len(agent.acted) == 1


async def test_a_question_that_nobody_answers_expires_as_a_denial(tmp_path: Path) -> None:
    agent, clock = Careful(), OwnedClock()
    async with World(tmp_path, agent, owners=["paper:7"], clock=clock) as world:
        world.paper.says("clean up")
        await world.until(lambda: world.paper.posts_in("1"))
        (question,) = world.paper.visible("1")
        await clock.advance(29 * 60)
        assert len(agent.turns) == 1
        await clock.advance(120)
        await world.until(lambda: len(world.paper.posts_in("1")) == 2)
        assert world.paper.posts_in("1")[-1] == "Not done: rm build, nobody answered within 30 minutes."
        after = next(post for post in world.paper.visible("1") if post.id == question.id)
        assert after.text.startswith("Nobody answered until")
        await press_late(world, question, "Once")
        await world.until(lambda: world.paper.posts_in("1")[-1].startswith("Nobody answered until"))
        assert agent.acted == []


async def test_a_member_waits_for_the_owner_who_is_asked_at_home(tmp_path: Path) -> None:
    agent = Careful()
    async with World(tmp_path, agent, allow=["paper:8"], owners=["paper:7"]) as world:
        await with_home(world)
        world.paper.says("clean up", sender="8", chat="8")
        question = await asked(world, "home")
        assert "paper:8" in question.text
        assert world.paper.posts_in("8") == ["I need an approval before I can go on. An owner or admin has been asked."]
        world.paper.says("hello?", sender="8", chat="8")
        await until_said(world, "Your message is next.", "8")
        world.paper.says("are you there?", sender="8", chat="8")
        agent.commands = ("rm build",)
        world.paper.presses(question.id, button(question, "Once"), sender="7")
        await until_said(world, "Done: rm build.", "8")
        assert [post for post in world.paper.posts_in("8") if "is next" in post] == [
            "I wait for an owner or admin to approve a tool call. Your message is next."
        ]


async def test_a_member_cannot_press_what_the_owner_is_asked(tmp_path: Path) -> None:
    """D5: the press of somebody who may not approve changes nothing, and the question stays open."""
    agent = Careful()
    async with World(tmp_path, agent, allow=["paper:8"], owners=["paper:7"]) as world:
        await with_home(world)
        world.paper.says("clean up", sender="8", chat="8")
        question = await asked(world, "home")
        world.ignored.add(world.paper.presses(question.id, button(question, "Once"), sender="8"))
        await world.settled()
        assert agent.acted == []
        world.paper.presses(question.id, button(question, "Once"), sender="7")
        await until_said(world, "Done: rm build.", "8")


async def test_members_approve_for_themselves_where_the_settings_say_so(tmp_path: Path) -> None:
    agent = Careful()
    async with World(tmp_path, agent, approvals={"members_approve": True}) as world:
        world.paper.says("clean up")
        question = await asked(world)
        assert [choice.label for choice in question.choices] == ["Once", "For this talk", "Deny"]
        world.paper.presses(question.id, button(question, "Once"))
        await until_said(world, "Done: rm build.")


async def test_where_nobody_can_be_asked_the_tool_is_denied_at_once(tmp_path: Path) -> None:
    """S20: never a run that hangs."""
    agent = Careful()
    async with World(tmp_path, agent) as world:
        world.paper.says("clean up")
        await until_said(world, "Not done: rm build, nobody who may approve it can be reached.")
        assert agent.acted == []


async def test_an_approval_for_the_talk_covers_the_same_words_until_the_talk_ends(tmp_path: Path) -> None:
    agent = Careful()
    async with World(tmp_path, agent, owners=["paper:7"]) as world:
        world.paper.says("clean up")
        question = await asked(world)
        world.paper.presses(question.id, button(question, "For this talk"))
        await until_said(world, "Done: rm build.")
        world.paper.says("again")
        await world.paper.until(lambda paper: paper.posts_in("1").count("Done: rm build.") == 2)
        agent.commands = ("rm -rf /",)
        world.paper.says("and that")
        await world.paper.until(lambda paper: any("rm -rf /" in post for post in paper.posts_in("1")))
        world.paper.says("/deny no way")
        await world.paper.until(lambda paper: any("denied it" in post for post in paper.posts_in("1")))
        agent.commands = ("rm build",)
        world.paper.says("/new")
        world.paper.says("once more")
        await world.eventually(lambda: len(world.rows("SELECT 1 FROM approvals WHERE state = 'open'")) == 1)
        assert len(agent.acted) == 2


async def test_an_approval_without_texts_of_others_does_not_cover_a_run_that_read_some(tmp_path: Path) -> None:
    agent = Careful()
    async with World(tmp_path, agent, owners=["paper:7"]) as world:
        world.paper.says("clean up")
        question = await asked(world)
        world.paper.presses(question.id, button(question, "Always"))
        await until_said(world, "Done: rm build.")
        agent.read = ("the page example.org",)
        world.paper.says("read that page")
        await world.paper.until(
            lambda paper: any("Before this I read: the page example.org." in p for p in paper.posts_in("1"))
        )
        assert len(agent.acted) == 1


async def test_stop_withdraws_the_question_and_ends_the_run(tmp_path: Path) -> None:
    agent = Careful()
    async with World(tmp_path, agent, owners=["paper:7"]) as world:
        key = world.paper.says("clean up")
        question = await asked(world)
        world.paper.says("/stop")
        assert (await world.outcome(key)).kind is OutcomeKind.CANCELLED
        await until_said(world, "No longer needed")
        await press_late(world, question, "Once")
        await world.settled()
        assert agent.acted == []
        world.paper.says("/status")
        await until_said(world, "Nothing is running here.")


async def test_a_removed_persons_question_is_withdrawn(tmp_path: Path) -> None:
    agent = Careful()
    async with World(tmp_path, agent, allow=[], owners=["paper:7"]) as world:
        await with_home(world)
        await world.admit("paper:8")
        key = world.paper.says("clean up", sender="8", chat="8")
        await asked(world, "home")
        await world.remove("paper:8")
        assert (await world.outcome(key)).kind is OutcomeKind.CANCELLED
        await until_said(world, "No longer needed", "home")


async def test_several_questions_of_a_run_are_asked_one_after_the_other(tmp_path: Path) -> None:
    agent = Careful("one", "two", "three")
    async with World(tmp_path, agent, owners=["paper:7"]) as world:
        key = world.paper.says("go")
        for choice in ("Once", "Deny", "Once"):
            await world.eventually(lambda: len(world.rows("SELECT 1 FROM approvals WHERE state = 'open'")) == 1)
            question = await asked(world)
            world.paper.presses(question.id, button(question, choice))
            await world.eventually(
                lambda id=question.id: not next(post for post in world.paper.visible("1") if post.id == id).choices  # type: ignore[misc]
            )
        outcome = await world.outcome(key)
        assert outcome.text.startswith("Done: one. Not done: two,")
        assert outcome.text.endswith("Done: three. ")
        assert [command for _, command in agent.acted] == ["one", "three"]


async def test_a_waiting_question_delays_no_other_chat(tmp_path: Path) -> None:
    """E9: with one slot in all, another chat is answered while a question waits."""
    agents = {"bot": Careful(), "echo": Echo()}
    rules = [Rule(platform="paper", chat="2", bot="echo")]
    async with World(tmp_path, agents, owners=["paper:7"], rules=rules, limits={"runs": 1}) as world:
        world.paper.says("clean up")
        await asked(world)
        world.paper.says("hi", chat="2")
        await until_said(world, "you said: hi", "2")


async def test_the_desk_answers_by_the_beginning_of_an_id_and_by_the_run(tmp_path: Path) -> None:
    agent = Careful()
    async with World(tmp_path, agent, owners=["paper:7"]) as world:
        desk = world.gateway.desk
        for way in ("id", "short", "run"):
            key = world.paper.says(f"clean up by {way}")
            await world.eventually(lambda: len(world.rows("SELECT 1 FROM approvals WHERE state = 'open'")) == 1)
            (question,) = await desk.approvals.open(OWNER)
            named = {"id": question.id, "short": question.id[4:10], "run": question.run}[way]
            answered = await desk.approvals.answer(OWNER, named, Choice.ONCE)
            assert (answered.state, answered.by) == (Answer.GRANTED, "the owner")
            await world.outcome(key)
            with pytest.raises(Conflict):
                await desk.approvals.answer(OWNER, question.id, Choice.DENY)
        assert len(agent.acted) == 3


async def test_others_see_no_question_and_cannot_answer_it(tmp_path: Path) -> None:
    agent = Careful()
    async with World(
        tmp_path, agent, allow=["paper:8"], owners=["paper:7"], approvals={"members_approve": True}
    ) as world:
        world.paper.says("clean up")
        await asked(world)
        desk = world.gateway.desk
        (question,) = await desk.approvals.open(OWNER)
        bob = await desk.people.get("paper:8")
        person = OWNER.__class__(id=bob.id, role=Role.MEMBER, identities=("paper:8",))
        assert await desk.approvals.open(person) == []
        with pytest.raises(Unknown):
            await desk.approvals.answer(person, question.id, Choice.ONCE)
        assert agent.acted == []


async def test_only_an_owner_approves_for_always(tmp_path: Path) -> None:
    agent = Careful()
    async with World(tmp_path, agent, allow=[], access={"admins": ("paper:7",)}) as world:
        world.paper.says("clean up")
        question = await asked(world)
        assert "Always" not in [choice.label for choice in question.choices]
        world.paper.says("/approve always")
        await until_said(world, "Only an owner can approve something for always.")
        admin = OWNER.__class__(id="paper:7", role=Role.ADMIN, identities=("paper:7",))
        with pytest.raises(NotPermitted):
            await world.gateway.desk.approvals.answer(admin, question.choices[0].id.partition("/")[0], Choice.ALWAYS)
        world.paper.says("/approve")
        await until_said(world, "Done: rm build.")


async def test_standing_approvals_are_listed_and_revoked(tmp_path: Path) -> None:
    agent = Careful()
    async with World(tmp_path, agent, owners=["paper:7"]) as world:
        world.paper.says("clean up")
        await asked(world)
        world.paper.says("/approve always")
        await until_said(world, "Done: rm build.")
        world.paper.says("/approvals")
        await until_said(world, "Approved for longer:")
        (standing,) = await world.gateway.desk.approvals.standing(OWNER)
        world.paper.says(f"/approvals revoke {standing.id[4:10]}")
        await until_said(world, "I will ask again before terminal runs: rm build")
        world.paper.says("clean up")
        await world.eventually(lambda: len(world.rows("SELECT 1 FROM approvals WHERE state = 'open'")) == 1)


async def test_an_answer_of_an_unowned_clock_is_never_early(tmp_path: Path) -> None:
    """Questions asked before a restart keep their deadline."""
    agent, clock = Careful(), FakeClock()
    async with World(tmp_path, agent, owners=["paper:7"], clock=clock) as world:
        world.paper.says("clean up")
        await asked(world)
        await clock.advance(20 * 60)
        await world.restart()
        assert len(world.rows("SELECT 1 FROM approvals WHERE state = 'open'")) == 1
        await clock.advance(11 * 60)
        await world.until(lambda: any("nobody answered" in post for post in world.paper.posts_in("1")))


async def test_a_standing_approval_ends_with_the_person_who_gave_it(tmp_path: Path) -> None:
    agent = Careful()
    async with World(tmp_path, agent, allow=["paper:8"], owners=["paper:7"]) as world:
        await with_home(world)
        await world.admit("paper:6", Role.ADMIN)
        world.paper.says("clean up", sender="8", chat="8")
        question = await asked(world, "home")
        world.paper.presses(question.id, button(question, "For this talk"), sender="6")
        await until_said(world, "Done: rm build.", "8")
        await world.remove("paper:6")
        world.paper.says("again", sender="8", chat="8")
        # The home was that person's chat too, so there is nobody left to ask.
        await until_said(world, "Not done: rm build, nobody who may approve it can be reached.", "8")
        assert len(agent.acted) == 1
