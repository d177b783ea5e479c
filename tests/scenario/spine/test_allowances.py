"""Allowances: what people, chats, bots and the gateway may use, and what happens to what goes beyond."""

import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.simulators.paper.simulator import Kind
from tests.worlds.world import Echo, Gate, OwnedClock, Scripted, World, armed, handed
from tidings.core.agent import ApprovalAsked, Checkpoint, ChoicesOffered, Event, Finished, TextDelta, Turn, Usage
from tidings.core.desk.work import Goal
from tidings.core.roles import OWNER
from tidings.core.settings import Allowances, Rule
from tidings.core.types import Refusal, Refused, Stored, Target

DAY = 86_400.0
CALL = 100


class Costly:
    """Asks a model once for each answer: every call costs the same."""

    def __init__(self, tokens: int = CALL, cost: float = 0.0, gate: Gate | None = None) -> None:
        self.used = Usage(input_tokens=tokens - 10, output_tokens=10, requests=1, cost=cost)
        self.calls: list[str] = []
        self.gate = gate

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        if self.gate is not None:
            await self.gate.wait()
        self.calls.append(turn.run)
        yield TextDelta("fine")
        yield Finished(usage=self.used)


def members(**limits: Any) -> dict[str, Any]:
    return {"zone": "UTC", "roles": {"member": limits}}


def gateway(**limits: Any) -> dict[str, Any]:
    return {"zone": "UTC", "gateway": limits}


async def ask(world: World, text: str = "hi", chat: str = "1", sender: str = "7") -> str:
    """The last post in the chat when all is over; empty if there is none."""
    world.paper.says(text, chat=chat, sender=sender)
    await world.until(lambda: not world.paper.unconfirmed)
    await world.until(lambda: not world.rows("SELECT 1 FROM inbox WHERE state IN ('waiting', 'running')"))
    await world.until(lambda: not world.rows("SELECT 1 FROM deliveries WHERE state = 'waiting'"))
    return (world.paper.posts_in(chat) or [""])[-1]


def spent(world: World, scope: str, name: str, span: str) -> dict[str, Any]:
    sql = "SELECT * FROM spending WHERE scope = ? AND name = ? AND span = ?"
    return next((dict(row) for row in world.rows(sql, scope, name, span)), {})


def reserved(world: World) -> int:
    return int(world.rows("SELECT coalesce(sum(reserved_tokens), 0) AS n FROM spending")[0]["n"])


async def flood(world: World, number: int) -> None:
    """As many people in as many private chats write at once."""
    for each in range(number):
        world.paper.says(f"message {each}", chat=str(each), sender="7")
    await world.until(lambda: not world.paper.unconfirmed)
    await world.until(lambda: not world.rows("SELECT 1 FROM inbox WHERE state IN ('waiting', 'running')"))


# A hundred at once.


async def test_a_hundred_messages_at_once_get_the_tokens_of_ten_calls_and_at_most_one_more(tmp_path: Path) -> None:
    agent = Costly()
    async with World(tmp_path, agent, clock=OwnedClock(), allowances=gateway(tokens=10 * CALL)) as world:
        await flood(world, 100)
        assert 10 <= len(agent.calls) <= 11
        assert reserved(world) == 0
        assert len(world.rows("SELECT 1 FROM inbox WHERE kind = 'message'")) == 100, "none is lost from the record"


async def test_a_hundred_messages_at_once_get_exactly_ten_answers(tmp_path: Path) -> None:
    agent = Costly()
    async with World(tmp_path, agent, clock=OwnedClock(), allowances=members(runs=10)) as world:
        await flood(world, 100)
        assert len(agent.calls) == 10


async def test_a_hundred_messages_at_once_get_the_money_of_ten_calls(tmp_path: Path) -> None:
    agent = Costly(cost=0.1)
    async with World(tmp_path, agent, clock=OwnedClock(), allowances=gateway(money=1.0)) as world:
        await flood(world, 100)
        assert 10 <= len(agent.calls) <= 11


async def test_while_the_size_of_a_run_is_unknown_the_first_one_runs_alone(tmp_path: Path) -> None:
    gate = Gate()
    agent = Costly(gate=gate)
    async with World(tmp_path, agent, clock=OwnedClock(), allowances=gateway(tokens=10 * CALL)) as world:
        for chat in ("1", "2"):
            world.paper.says("hi", chat=chat)
        await gate.reached()
        await world.rest()
        assert world.gateway.desk.meters.running == 1
        assert reserved(world) == 10 * CALL
        gate.open()
        await world.until(lambda: len(agent.calls) == 2)
        await world.until(lambda: world.paper.posts.count("fine") == 2)
        assert reserved(world) == 0


async def test_a_bot_that_asks_no_model_is_not_held_up_by_a_limit_of_tokens(tmp_path: Path) -> None:
    gates = {f"m{number}": Gate() for number in range(2)}
    async with World(tmp_path, Echo(gates), clock=OwnedClock(), allowances=gateway(tokens=1000)) as world:
        for _ in range(3):
            await ask(world)
        for number in range(2):
            world.paper.says(f"m{number}", chat=f"1{number}")
        for gate in gates.values():
            await gate.reached()
            gate.open()


# What somebody is told.


async def test_one_polite_line_says_when_it_goes_on_and_later_ones_get_only_a_sign(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with World(tmp_path, Costly(), clock=clock, allowances=members(runs=2)) as world:
        assert await ask(world) == "fine"
        assert await ask(world) == "fine"
        line = await ask(world)
        assert line.startswith("You have used today's allowance of 2 answers. I can go on at 00:00 (in ")
        for _ in range(3):
            await ask(world)
        assert [post for post in world.paper.posts if post == line] == [line]
        assert len(world.rows("SELECT 1 FROM inbox WHERE reason LIKE 'refused: allowance'")) == 4


async def test_a_new_day_brings_a_new_allowance_and_a_new_line(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with World(tmp_path, Costly(), clock=clock, allowances=members(runs=1)) as world:
        for _ in range(2):
            assert await ask(world) == "fine"
            assert "today's allowance of 1 answer." in await ask(world)
            await clock.advance(DAY)
        assert len([post for post in world.paper.posts if "allowance" in post]) == 2


async def test_the_day_is_that_of_the_persons_zone(tmp_path: Path) -> None:
    # 15:06 in London, and one minute past midnight in Tokyo half a minute later.
    clock = OwnedClock()
    clock.jump(1_750_085_970.0 - clock.wall())
    allowed = {
        "zone": "UTC",
        "people": {"paper:7": {"runs": 1, "zone": "Asia/Tokyo"}},
        "roles": {"member": {"runs": 1}},
    }
    async with World(tmp_path, Costly(), clock=clock, allow=["paper:7", "paper:8"], allowances=allowed) as world:
        assert await ask(world) == "fine"
        assert await ask(world, chat="2", sender="8") == "fine"
        await clock.advance(60)
        assert await ask(world) == "fine", "it is the next day in Tokyo"
        assert "I can go on at 00:00" in await ask(world, chat="2", sender="8")


async def test_a_wall_clock_that_jumps_ahead_and_back_forgets_nothing(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with World(tmp_path, Costly(), clock=clock, allowances=members(runs=1)) as world:
        assert await ask(world) == "fine"
        clock.jump(DAY)
        assert await ask(world) == "fine"
        clock.jump(-DAY)
        assert "allowance" in await ask(world)


async def test_messages_a_minute_are_counted_at_the_door(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with World(tmp_path, Costly(), clock=clock, allowances=members(messages=3)) as world:
        answers = [await ask(world) for _ in range(5)]
        assert answers[:3] == ["fine"] * 3
        assert answers[3].startswith("You have used the allowance of 3 messages a minute. I can go on in ")
        await clock.advance(61)
        assert await ask(world) == "fine"


# What waits when the allowance is used up.


async def test_what_waited_meanwhile_ends_with_an_outcome_and_one_line(tmp_path: Path) -> None:
    gate = Gate()
    agent = Costly(gate=gate)
    async with World(tmp_path, agent, clock=OwnedClock(), allowances=members(tokens=CALL)) as world:
        keys = [world.paper.says(f"message {number}") for number in range(3)]
        await gate.reached()
        await world.until(lambda: not world.paper.unconfirmed)
        gate.open()
        ends = [await world.outcome(key) for key in keys]
        assert [end.kind for end in ends] == ["completed", "failed", "failed"]
        assert ends[1].reason == f"your allowance of {CALL} tokens is used up until 00:00"
        await world.until(lambda: not world.rows("SELECT 1 FROM deliveries WHERE state = 'waiting'"))
        assert [post for post in world.paper.posts if "allowance" in post] == world.paper.posts[1:]
        assert len(world.paper.posts) == 2


async def test_background_work_counts_for_its_person_and_reports_that_nothing_is_left(tmp_path: Path) -> None:
    async with World(tmp_path, Costly(), clock=OwnedClock(), allowances=members(runs=1)) as world:
        assert await ask(world) == "fine"
        await ask(world, "/bg look into it")
        await world.until(lambda: any("is used up until 00:00" in post for post in world.paper.posts))
        assert world.rows("SELECT runs FROM spending WHERE scope = 'gateway'")[0]["runs"] == 1


async def test_a_retry_that_no_allowance_covers_takes_nothing_back(tmp_path: Path) -> None:
    async with World(tmp_path, Costly(), clock=OwnedClock(), allowances=members(runs=1)) as world:
        assert await ask(world, "hi") == "fine"
        assert "today's allowance of 1 answer" in await ask(world, "/retry")
        assert "Undone: “hi”" in await ask(world, "/undo"), "the answer was still there"


async def test_a_press_and_a_retry_count_as_one_message_each(tmp_path: Path) -> None:
    agent = Scripted("which?", ChoicesOffered(("this",)))
    async with World(tmp_path, agent, clock=OwnedClock(), allowances=members(messages=3)) as world:
        assert await ask(world) == "which?"
        (question,) = world.paper.visible()
        world.paper.presses(question.id, question.choices[0].id)
        await world.until(lambda: world.paper.posts == ["which?"] * 2)
        assert await ask(world, "/retry") == "which?"
        assert "3 messages a minute" in await ask(world)


async def test_hundreds_that_wait_for_a_rest_do_not_all_look_again_every_second(tmp_path: Path) -> None:
    gate, clock = Gate(), OwnedClock()
    async with World(tmp_path, Costly(gate=gate), clock=clock, allowances=gateway(tokens=1000 * CALL)) as world:
        for chat in range(200):
            world.paper.says("hi", chat=str(chat))
        await gate.reached()
        await world.until(lambda: not world.paper.unconfirmed)
        await clock.advance(5)
        row = world.rows("SELECT max(ready) - min(ready) AS spread FROM inbox WHERE state = 'waiting'")[0]
        assert row["spread"] > 3.0
        gate.open()
        await world.until(lambda: world.paper.posts.count("fine") == 200)


async def test_a_sign_of_waiting_goes_when_the_message_is_turned_away(tmp_path: Path) -> None:
    gate, clock, kind = Gate(), OwnedClock(), Kind(keyed_for=3600.0, streaming="none", typing=False)
    async with World(tmp_path, Costly(gate=gate), clock=clock, kind=kind, allowances=members(tokens=CALL)) as world:
        keys = [world.paper.says(f"message {number}") for number in range(3)]
        await gate.reached()
        await clock.advance(120)
        assert world.paper.message(keys[1]).reaction == world.paper.message(keys[2]).reaction == "⏳"
        gate.open()
        for key in keys:
            await world.outcome(key)
        await clock.advance(10)
        assert [world.paper.message(key).reaction for key in keys] == ["✅", "❌", "❌"]


async def test_a_run_that_two_allowances_limit_is_cut_in_the_name_of_neither(tmp_path: Path) -> None:
    agent = Scripted("fine")
    allowed = {"zone": "UTC", "roles": {"member": {"tokens": 10**6}}, "gateway": {"money": 1.0}}
    async with World(tmp_path, agent, clock=OwnedClock(), allowances=allowed) as world:
        await ask(world)
        assert agent.turns[0].rest().words == "an allowance for today is used up"


# Whose allowance it is.


async def test_two_people_in_one_group_have_their_own_allowance_and_each_is_told(tmp_path: Path) -> None:
    people = ["paper:7", "paper:8"]
    async with World(tmp_path, Costly(), clock=OwnedClock(), allow=people, allowances=members(runs=1)) as world:
        for sender in ("7", "8"):
            assert await ask(world, chat="1", sender=sender) == "fine"
        for sender in ("7", "8", "7"):
            await ask(world, chat="1", sender=sender)
        assert len([post for post in world.paper.posts if "allowance" in post]) == 2


async def test_a_group_is_told_once_that_the_gateways_allowance_is_used_up(tmp_path: Path) -> None:
    people = ["paper:7", "paper:8", "paper:9"]
    async with World(tmp_path, Costly(), clock=OwnedClock(), allow=people, allowances=gateway(runs=1)) as world:
        for sender in ("7", "7", "8", "9"):
            await ask(world, chat="1", sender=sender)
        assert len([post for post in world.paper.posts if "This gateway has used" in post]) == 1
        assert "This gateway has used" in await ask(world, chat="9", sender="9"), "elsewhere it is new"


async def test_a_chat_and_a_bot_have_allowances_of_their_own(tmp_path: Path) -> None:
    for allowed in ({"chats": {"paper:1": {"runs": 1}}}, {"bots": {"bot": {"runs": 1}}}):
        home = tmp_path / next(iter(allowed))
        async with World(home, Costly(), clock=OwnedClock(), allow=["paper:7", "paper:8"], allowances=allowed) as world:
            assert await ask(world, chat="1", sender="7") == "fine"
            assert "has used today's allowance" in await ask(world, chat="1", sender="8")


async def test_an_admin_without_an_allowance_is_free_until_the_gateways_own_is_used(tmp_path: Path) -> None:
    allowed = {"zone": "UTC", "roles": {"member": {"runs": 1}}, "gateway": {"runs": 4}}
    access = {"admins": ("paper:9",)}
    async with World(tmp_path, Costly(), clock=OwnedClock(), access=access, allowances=allowed) as world:
        assert await ask(world) == "fine"
        assert "You have used" in await ask(world)
        for _ in range(3):
            assert await ask(world, chat="9", sender="9") == "fine"
        assert "This gateway has used" in await ask(world, chat="9", sender="9")


async def test_linked_identities_share_one_allowance_also_for_what_was_used_before(tmp_path: Path) -> None:
    async with World(tmp_path, Costly(), clock=OwnedClock(), allow=[], allowances=members(runs=2)) as world:
        for sender in ("7", "8"):
            await world.admit(f"paper:{sender}")
            assert await ask(world, chat=sender, sender=sender) == "fine"
        people = {line.identities: line.id for line in await world.gateway.desk.people.all()}
        await world.gateway.desk.people.link(OWNER, people["paper:7",], "paper:8")
        assert "You have used today's allowance of 2 answers" in await ask(world, chat="8", sender="8")


async def test_linked_identities_share_the_messages_of_a_minute(tmp_path: Path) -> None:
    async with World(tmp_path, Costly(), clock=OwnedClock(), allow=[], allowances=members(messages=2)) as world:
        for sender in ("7", "8"):
            await world.admit(f"paper:{sender}")
        people = {line.identities: line.id for line in await world.gateway.desk.people.all()}
        await world.gateway.desk.people.link(OWNER, people["paper:7",], "paper:8")
        answers = [await ask(world, chat=sender, sender=sender) for sender in ("7", "8", "7", "8")]
        assert answers[:2] == ["fine"] * 2
        assert ["2 messages a minute" in answer for answer in answers[2:]] == [True] * 2


# Reservations.


async def test_a_crash_between_claim_and_end_neither_loses_nor_doubles_a_reservation(tmp_path: Path) -> None:
    gate = Gate()
    agent = Costly(gate=gate)
    async with World(tmp_path, agent, clock=OwnedClock(), allowances=gateway(tokens=10 * CALL)) as world:
        world.paper.says("hi")
        await gate.reached()
        assert reserved(world) == 10 * CALL
        for _ in range(2):
            await world.crash()
            await world.start()
            await world.rest()
            assert reserved(world) == 10 * CALL, "the claim after the crash keeps what the first one reserved"
        gate.open()
        await world.until(lambda: world.paper.posts == ["fine"])
        assert reserved(world) == 0
        day = world.rows("SELECT span FROM spending WHERE scope = 'gateway'")[0]["span"]
        assert spent(world, "gateway", "", day)["runs"] == 1


async def test_a_run_that_recovery_ends_gives_back_what_it_reserved_and_counts_its_checkpoint(tmp_path: Path) -> None:
    used = Usage(input_tokens=30, output_tokens=5, requests=1)
    gate = Gate()
    agent = Scripted("so far", Checkpoint(b"{}", used), gate)
    async with World(tmp_path, agent, clock=OwnedClock(), allowances=gateway(tokens=10 * CALL)) as world:
        key = world.paper.says("hi")
        await gate.reached()
        for _ in range(3):
            await world.crash()
            await world.start()
            await world.rest()
        assert (await world.outcome(key)).usage == used
        row = world.rows("SELECT * FROM spending WHERE scope = 'gateway'")[0]
        assert (row["input_tokens"], row["output_tokens"], row["runs"], row["reserved_tokens"]) == (30, 5, 1, 0)


@pytest.mark.parametrize("label", ["run.claimed", "run.pre_model", "run.post_model", "run.pre_terminal"])
async def test_a_failure_between_claim_and_end_is_made_good_by_the_next_process(tmp_path: Path, label: str) -> None:
    agent = Costly()
    async with World(tmp_path, agent, clock=OwnedClock(), allowances=gateway(tokens=10 * CALL)) as world:
        with armed(f"{label}:1:raise"):
            world.paper.says("hi")
            await world.until(lambda: not world.paper.unconfirmed)
            await world.rest()
        await world.crash()
        await world.start()
        await world.until(lambda: world.paper.posts)
        row = world.rows("SELECT * FROM spending WHERE scope = 'gateway'")[0]
        assert (row["runs"], row["reserved_tokens"]) == (1, 0)
        assert row["input_tokens"] + row["output_tokens"] == CALL


async def test_what_a_run_uses_after_midnight_counts_for_the_day_on_which_it_began(tmp_path: Path) -> None:
    gate = Gate()
    clock = OwnedClock()
    async with World(tmp_path, Costly(gate=gate), clock=clock, allowances=gateway(tokens=10 * CALL)) as world:
        world.paper.says("hi")
        await gate.reached()
        clock.jump(DAY)
        gate.open()
        await world.until(lambda: world.paper.posts == ["fine"])
        (row,) = world.rows("SELECT * FROM spending WHERE scope = 'gateway'")
        assert (row["runs"], row["input_tokens"] + row["output_tokens"], row["reserved_tokens"]) == (1, CALL, 0)


class Foreman(Costly):
    """Lets another agent dig and waits for it; has used nothing before."""

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        if turn.message.text == "delegate":
            begun = [await turn.desk.tasks.delegate(Goal(f"dig {each}", "dig", None)) for each in range(2)]
            for each in begun:
                yield TextDelta(f"{(await turn.desk.tasks.finish(each)).text} and ")
        async for event in super().run(turn):
            yield event


async def test_a_run_that_waits_for_another_one_holds_nothing_that_the_other_one_needs(tmp_path: Path) -> None:
    clock = OwnedClock()
    async with World(tmp_path, Foreman(), clock=clock, allowances=gateway(tokens=3 * CALL)) as world:
        began = clock.now()
        assert await ask(world, "delegate") == "fine and fine and fine"
        assert clock.now() < began + 10
        assert reserved(world) == 0
        (row,) = world.rows("SELECT * FROM spending WHERE scope = 'gateway'")
        assert (row["runs"], row["input_tokens"] + row["output_tokens"]) == (3, 3 * CALL)


async def test_a_run_that_asks_people_holds_only_what_it_has_used(tmp_path: Path) -> None:
    used = Usage(input_tokens=CALL, requests=1)
    asking = Scripted(Checkpoint(b"{}", used), ApprovalAsked("c", "dig", "dig here", "d"), finish=False)
    bots = {"bot": Costly(), "digger": asking}
    rules = [Rule(chat="9", bot="digger")]
    allowed = gateway(tokens=10 * CALL)
    async with World(tmp_path, bots, clock=OwnedClock(), owners=["paper:7"], rules=rules, allowances=allowed) as world:
        world.paper.says("dig", chat="9")
        await world.until(lambda: world.rows("SELECT 1 FROM inbox WHERE asking <> ''"))
        assert {row["reserved_tokens"] for row in world.rows("SELECT * FROM spending WHERE scope = 'gateway'")} == {
            CALL
        }
        world.paper.says("hi", chat="2")
        await world.until(lambda: world.paper.posts_in("2") == ["fine"])
        bots["digger"].steps = ("dug",)
        world.paper.says("/deny", chat="9")
        await world.until(lambda: not world.rows("SELECT 1 FROM inbox WHERE state IN ('waiting', 'running')"))
        assert reserved(world) == 0


async def test_a_person_who_is_forgotten_during_a_run_is_in_no_figure_afterwards(tmp_path: Path) -> None:
    gate, allowed = Gate(), {"roles": {"member": {"tokens": 1000}}, "gateway": {"tokens": 1000}}
    agent = Costly()
    async with World(tmp_path, agent, clock=OwnedClock(), allow=[], allowances=allowed) as world:
        await world.admit("paper:7")
        await ask(world, chat="7")
        agent.gate = gate
        world.paper.says("again", chat="7")
        await gate.reached()
        await world.gateway.desk.people.forget(OWNER, "paper:7")
        await world.until(lambda: not world.rows("SELECT 1 FROM inbox WHERE state IN ('waiting', 'running')"))
        assert [
            dict(r)
            for r in world.rows(
                "SELECT scope, name, span, runs, reserved_tokens FROM spending WHERE scope NOT IN ('bot', 'gateway')"
            )
        ] == []
        assert reserved(world) == 0
        assert world.rows("SELECT runs FROM spending WHERE scope = 'gateway'")[0]["runs"] == 2


# The owner.


async def test_the_owner_is_told_at_80_and_at_100_percent_once_each(tmp_path: Path) -> None:
    async with World(tmp_path, Costly(), clock=OwnedClock(), owners=["paper:9"], allowances=gateway(runs=5)) as world:
        await ask(world, chat="9", sender="9")
        await world.set_home(Target(adapter="paper", chat="9"))
        for _ in range(6):
            await ask(world)
        told = [post for post in world.paper.posts_in("9") if post != "fine"]
        assert [post.split(":")[0] for post in told] == [
            "⚠ The gateway has used 80 % of its allowance for today",
            "⚠ The gateway has used 100 % of its allowance for today",
        ]


# Reload.


async def test_changed_allowances_count_at_once_and_nothing_that_was_used_is_forgotten(tmp_path: Path) -> None:
    async with World(tmp_path, Costly(), clock=OwnedClock(), allowances=members(runs=1)) as world:
        assert await ask(world) == "fine"
        assert "allowance" in await ask(world)
        world.allowances = members(runs=2)
        world.gateway._parts.allowances.renew(Allowances(**world.allowances))
        assert await ask(world) == "fine"
        await ask(world)
        assert world.paper.posts.count("fine") == 2


# The API's answer.


async def test_a_refusal_carries_the_words_and_the_seconds(tmp_path: Path) -> None:
    async with World(tmp_path, Costly(), clock=OwnedClock(), allowances=members(runs=1)) as world:
        assert isinstance(await world.receive(handed("one")), Stored)
        await world.until(lambda: "fine" in world.paper.posts)
        refused = await world.receive(handed("two"))
        assert isinstance(refused, Refused)
        assert refused.reason is Refusal.ALLOWANCE
        assert "today's allowance" in refused.words
        assert 0 < refused.seconds <= DAY


# Figures that nothing can be counted with.


ABSURD = {
    "less than nothing": Usage(input_tokens=-5000, output_tokens=-1, requests=-1, cost=-3.0),
    "more than the store can hold": Usage(input_tokens=10**30, requests=1),
    "endless money": Usage(input_tokens=10, requests=1, cost=math.inf),
    "no number": Usage(input_tokens=10, requests=1, cost=math.nan),
    "a part of a token": Usage(input_tokens=1.5, requests=1),  # type: ignore[arg-type]
    "words": Usage(input_tokens="many", requests=1),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("used", ABSURD.values(), ids=ABSURD)
@pytest.mark.parametrize("step", [Checkpoint, Finished], ids=["checkpoint", "end"])
async def test_absurd_usage_that_an_agent_reports_neither_stops_a_run_nor_gives_anything_back(
    tmp_path: Path, used: Usage, step: type[Checkpoint | Finished]
) -> None:
    said = Checkpoint(b"{}", used) if step is Checkpoint else Finished(usage=used)
    agent = Scripted("fine", said)
    async with World(tmp_path, agent, clock=OwnedClock(), allowances=gateway(runs=10)) as world:
        assert await ask(world) == "fine"
        row = world.rows("SELECT * FROM spending WHERE scope = 'gateway'")[0]
        assert 0 <= row["input_tokens"] <= 10**12
        assert row["output_tokens"] >= 0
        assert 0 <= row["cost"] <= 1e6


async def test_ten_times_a_tenth_of_a_dollar_is_a_dollar(tmp_path: Path) -> None:
    agent = Costly(cost=0.1)
    async with World(tmp_path, agent, clock=OwnedClock(), allowances=members(money=1.0)) as world:
        for _ in range(11):
            await ask(world)
        assert len(agent.calls) == 10
