"""Workers of the board that are processes: heard by their pipes, ended with all that came of them, never lost."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.worlds.board import HAND, NOBODY, Verdict, added, card, obeyed, process, state_of, until
from tests.worlds.world import OwnedClock, World
from tidings.core.desk.board import Block, CardState, Ending, NewCard, Order
from tidings.core.store.sqlite import DATABASE
from tidings.core.work.processes import identity, launcher

DONE, BLOCKED = CardState.DONE, CardState.BLOCKED

SILENT = process("print('I am tired'); sys.exit(0)")
GOOD = process("say(do='comment', text='halfway'); say(do='complete', summary='built ' + brief['title'])")
BUDGET = process("say(do='block', kind='budget', reason='out of tokens', notes='walls done, roof open')")
EFFECT = process("say(do='effect', what='paid'); sys.exit(3)")
KILLED = process("os.kill(os.getpid(), 9)")
HANG = process("time.sleep(3600)")
# A chat may give it cards.
GIVEN = {"assignees": ("joiner",)}
# A short lease; everything else as by default.
QUICK = {"lease_seconds": 0.5, "heartbeat_seconds": 0.2, "retry_seconds": 0.01}


@pytest.mark.parametrize(
    ("worker", "state", "attempts", "kind", "words"),
    [
        (GOOD, DONE, 1, None, ""),
        (BUDGET, BLOCKED, 1, Block.BUDGET, "out of tokens"),
        (SILENT, BLOCKED, 2, Block.PROTOCOL, "(exit code 0); its last words: “I am tired”; its log is "),
        (EFFECT, BLOCKED, 1, Block.PROTOCOL, "(exit code 3); it said nothing"),
        (KILLED, BLOCKED, 2, Block.INTERRUPTED, "(exit code 137)"),
        (("no-such-command",), BLOCKED, 1, Block.NOT_RUNNABLE, "no-such-command"),
        (HANG, BLOCKED, 2, Block.HANG, "the worker was silent for 0.5 s"),
    ],
    ids=["good", "budget", "silent", "effect", "killed", "missing", "hang"],
)
async def test_a_worker_that_is_a_process_always_ends_in_a_verdict(
    tmp_path: Path, worker: tuple[str, ...], state: CardState, attempts: int, kind: Block | None, words: str
) -> None:
    lease = QUICK if worker is HANG else {"retry_seconds": 0.01}
    async with World(tmp_path, Verdict("unused"), board={**lease, "workers": {"joiner": worker}, **GIVEN}) as world:
        made = await added(world.gateway.desk.board, NewCard("a shed", assignee="joiner"), HAND)
        found = await until(world, made.id, state)
        assert (found.state, found.block, len(found.attempts)) == (state, kind, attempts)
        assert words in found.reason
        await world.settled()
        assert len(world.posts) == 1
        if worker is GOOD:
            assert (found.summary, found.remarks[0].text) == ("built a shed", "halfway")
        if worker is BUDGET:
            assert "walls done, roof open" in world.posts[0]
        if worker is SILENT:
            assert Path(found.attempts[0].log).read_text() == "I am tired\n"
        if worker is HANG:
            launchers = [row["pid"] for row in world.rows("SELECT pid FROM card_attempts")]
            await world.eventually(lambda: not any(pid and _lives(pid) for pid in launchers))


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_archiving_ends_the_whole_process_group(tmp_path: Path) -> None:
    worker = process("import subprocess\nchild = subprocess.Popen(['sleep', '600'])\n"
                     "open('pid', 'w').write(str(child.pid))\ntime.sleep(600)")  # fmt: skip
    async with World(tmp_path, Verdict("unused"), board={"workers": {"joiner": worker}, **GIVEN}) as world:
        made = await added(world.gateway.desk.board, NewCard("a", assignee="joiner"), HAND)
        written = tmp_path / "workspaces" / "card-1" / "pid"
        await world.eventually(lambda: written.exists() and written.read_text())
        await obeyed(world.gateway.desk.board, Order("archive", id=made.id), HAND)
        await world.eventually(lambda: not _lives(int(written.read_text())))


async def test_a_process_that_the_gateway_took_down_with_it_is_tried_again_after_the_restart(tmp_path: Path) -> None:
    worker = process(
        "open('tries', 'a').write('x')\n"
        "if brief['attempt'] == 1: time.sleep(600)\n"
        "say(do='complete', summary=' | '.join(brief['earlier']))"
    )
    board = {"workers": {"joiner": worker}, **GIVEN, "retry_seconds": 0.01}
    async with World(tmp_path, Verdict("unused"), board=board) as world:
        made = await added(world.gateway.desk.board, NewCard("a", assignee="joiner"), HAND)
        tries = tmp_path / "workspaces" / "card-1" / "tries"
        await world.eventually(tries.exists)
        await world.crash()
        await world.start()
        found = await until(world, made.id, DONE)
        assert "Attempt 1 ended without a verdict (interrupted)" in found.summary
        assert tries.read_text() == "xx"


async def test_stopping_the_gateway_is_not_held_against_a_card(tmp_path: Path) -> None:
    worker = process(
        "open('tries', 'a').write('x')\nif brief['attempt'] < 4: time.sleep(600)\nsay(do='complete', summary='at last')"
    )
    async with World(tmp_path, Verdict("unused"), board={"workers": {"joiner": worker}, **GIVEN}) as world:
        made = await added(world.gateway.desk.board, NewCard("a", assignee="joiner"), HAND)
        tries = tmp_path / "workspaces" / "card-1" / "tries"
        for number in range(1, 4):
            await world.eventually(lambda number=number: tries.exists() and len(tries.read_text()) == number)  # type: ignore[misc]
            await world.end()
            await world.start()
        found = await until(world, made.id, DONE)
        assert [each.ending for each in found.attempts] == [Ending.RETRY] * 3 + [Ending.COMPLETE]


async def test_a_worker_that_is_heard_of_keeps_its_card_however_long_it_takes(tmp_path: Path) -> None:
    worker = process(
        "for number in range(4):\n"
        "    say(do='heartbeat', note=f'step {number}')\n"
        "    while not os.path.exists(f'go{number}'): time.sleep(0.01)\n"
        "say(do='complete', summary='slow and steady')"
    )
    clock = OwnedClock()
    async with World(tmp_path, Verdict("unused"), clock=clock, board={"workers": {"joiner": worker}, **GIVEN}) as world:
        made = await added(world.gateway.desk.board, NewCard("a", assignee="joiner"), HAND)
        heard = "SELECT 1 FROM card_events WHERE words = ?"
        for number in range(4):
            await world.eventually(lambda number=number: world.rows(heard, f"step {number}"))  # type: ignore[misc]
            # Two thirds of a lease, each time.
            await clock.advance(30)
            (tmp_path / "workspaces" / "card-1" / f"go{number}").touch()
        await world.eventually(lambda: state_of(world, made.id) == "done")
        assert len((await card(world, made.id)).attempts) == 1


@pytest.mark.parametrize("faithful", [True, False])
async def test_a_machine_that_slept_costs_no_worker_its_card(tmp_path: Path, faithful: bool) -> None:
    """The worker slept as well and could not be heard; one that is silent from then on loses the card as ever."""
    worker = process(
        "say(do='heartbeat', note='before')\n"
        "while not os.path.exists('go'): time.sleep(0.01)\n"
        "answer = say(do='heartbeat', note='after')\n"
        "say(do='complete', summary=f'told: {answer}')"
    )
    clock = OwnedClock()
    board = {"workers": {"joiner": worker}, "worker_seconds": 3600, **GIVEN}
    async with World(tmp_path, Verdict("unused"), clock=clock, board=board) as world:
        made = await added(world.gateway.desk.board, NewCard("a", assignee="joiner"), HAND)
        await world.eventually(lambda: world.rows("SELECT 1 FROM card_events WHERE words = 'before'"))
        clock.doze(8 * 3600)
        await clock.advance(0)
        assert state_of(world, made.id) == "running"
        # The hop that it slept in counts, and no more.
        await clock.advance(30)
        assert state_of(world, made.id) == "running"
        if faithful:
            (tmp_path / "workspaces" / "card-1" / "go").touch()
            await world.eventually(lambda: state_of(world, made.id) == "done")
            # Nobody told it that its time was nearly up.
            assert (await card(world, made.id)).summary == "told: {'ok': True}"
        else:
            await clock.advance(30)
        first = (await card(world, made.id)).attempts[0]
        assert (first.number, first.ending) == (1, Ending.COMPLETE if faithful else Ending.RETRY)


async def test_a_process_is_told_that_its_time_is_nearly_up_and_is_then_out_of_budget(tmp_path: Path) -> None:
    worker = process("open('told', 'w').write(sys.stdin.readline())\ntime.sleep(600)")
    clock = OwnedClock()
    board = {"workers": {"joiner": worker}, **GIVEN, "worker_seconds": 30}
    async with World(tmp_path, Verdict("unused"), clock=clock, board=board) as world:
        made = await added(world.gateway.desk.board, NewCard("a", assignee="joiner"), HAND)
        await world.eventually(lambda: world.rows("SELECT 1 FROM card_attempts WHERE pid IS NOT NULL"))
        told = tmp_path / "workspaces" / "card-1" / "told"
        await clock.advance(25)
        await world.eventually(lambda: told.exists() and "6 of 30 s are left" in told.read_text())
        await clock.advance(6)
        await world.eventually(lambda: state_of(world, made.id) == "blocked")
        found = await card(world, made.id)
        assert (found.block, len(found.attempts)) == (Block.BUDGET, 1)


async def test_nothing_of_ours_is_in_a_workers_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDINGS_SECRET_TOKEN", "hunter2-hunter2")
    worker = process("say(do='complete', summary=' '.join(sorted(os.environ)))")
    async with World(tmp_path, Verdict("unused"), board={"workers": {"joiner": worker}, **GIVEN}) as world:
        made = await added(world.gateway.desk.board, NewCard("a", assignee="joiner"), HAND)
        found = await until(world, made.id, DONE)
        names = set(found.summary.split()) - {"PWD", "LC_CTYPE", "SHLVL", "_", "OLDPWD"}
        assert names == {"PATH", "HOME", "LANG", "TIDINGS_CARD", "TIDINGS_CARD_ATTEMPT", "TIDINGS_CARD_WORKSPACE"}


async def test_a_process_may_not_complete_for_others_nor_hand_out_foreign_files(tmp_path: Path) -> None:
    worker = process(
        "answers = [say(do='complete', summary='x', artifacts=['/etc/passwd']), say(do='fly'),"
        " say(do='block', kind='dependency', reason='x'), say(do='complete', summary=' ')]\n"
        "say(do='complete', summary='\\n'.join(answer['error'] for answer in answers))"
    )
    async with World(tmp_path, Verdict("unused"), board={"workers": {"joiner": worker}, **GIVEN}) as world:
        made = await added(world.gateway.desk.board, NewCard("a", assignee="joiner"), HAND)
        found = await until(world, made.id, DONE)
        assert "there is no file /etc/passwd in the card's workspace" in found.summary
        assert "there is no command 'fly' here" in found.summary
        assert "'dependency' is not a kind of block" in found.summary
        assert "the summary must say what was done" in found.summary
        assert found.files == ()


async def test_what_a_process_hands_out_is_kept_as_it_was_then_and_no_link_is_followed(tmp_path: Path) -> None:
    worker = process(
        "open('plan.txt', 'w').write('green')\n"
        "os.symlink('/etc/passwd', 'passwd'), os.symlink('/etc', 'etc'), os.mkdir('folder'), os.mkfifo('pipe')\n"
        "places = ['passwd', 'etc/passwd', '../../tidings.db', 'folder', 'pipe', 'missing']\n"
        "refused = [say(do='attach', place=place)['ok'] for place in places]\n"
        "say(do='attach', place='plan.txt'), say(do='attach', place=os.path.abspath('plan.txt'))\n"
        "os.remove('plan.txt'), os.symlink('/etc/passwd', 'plan.txt')\n"
        "say(do='complete', summary=f'{refused}', artifacts=['https://example.org/shed'])"
    )
    async with World(tmp_path, Verdict("unused"), board={"workers": {"joiner": worker}, **GIVEN}) as world:
        made = await added(world.gateway.desk.board, NewCard("a", assignee="joiner"), NOBODY)
        found = await until(world, made.id, DONE)
        assert found.summary == str([False] * 6)
        kept, link = sorted(found.files, key=lambda file: file.name)
        assert (kept.name, Path(kept.place).read_text()) == ("plan.txt", "green")
        assert not Path(kept.place).is_relative_to(tmp_path / "workspaces")
        assert link.place == "https://example.org/shed"


async def test_a_log_that_cannot_be_written_keeps_nobody_from_being_heard(tmp_path: Path) -> None:
    for card_id in (1, 2):
        log = tmp_path / "board" / str(card_id) / "attempt-1.log"
        log.parent.mkdir(parents=True)
        log.symlink_to("/dev/full")
    worker = process(
        "print('all is well', flush=True)\n"
        "if brief['title'] == 'good': say(do='complete', summary='built')\n"
        "else: print('no nails', flush=True), say(do='effect'), sys.exit(3)"
    )
    async with World(tmp_path, Verdict("unused"), board={"workers": {"joiner": worker}, **GIVEN}) as world:
        for title in ("good", "bad"):
            await added(world.gateway.desk.board, NewCard(title, assignee="joiner"), NOBODY)
        assert (await until(world, "1", DONE)).summary == "built"
        found = await until(world, "2", BLOCKED)
        assert "(exit code 3); its last words: “all is well no nails”" in found.reason
        assert "attempt-1.log, which is incomplete: No space left on device" in found.reason


# Leaves its session, and ends by force alone.
STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if not os.fork():
    os.setsid()
    open('pid.new', 'w').write(str(os.getpid()))
    os.rename('pid.new', 'pid')
time.sleep(600)
"""


async def test_a_restart_lets_a_launcher_end_what_has_left_its_group(tmp_path: Path) -> None:
    async with World(tmp_path, Verdict("done"), board={"workers": {"joiner": HANG}}) as world:
        await added(world.gateway.desk.board, NewCard("a", assignee="joiner"), NOBODY)
        await world.eventually(lambda: world.rows("SELECT 1 FROM card_attempts WHERE pid IS NOT NULL"))
        await world.crash()
        # One that is still ending when the gateway is back.
        command = (sys.executable, "-I", "-S", launcher.__file__, sys.executable, "-I", "-S", "-c", STUBBORN)
        left = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, cwd=tmp_path, start_new_session=True
        )
        assert left.stdin
        left.stdin.write(b"!")
        await world.eventually((tmp_path / "pid").exists)
        child = int((tmp_path / "pid").read_text())
        try:
            with closing(sqlite3.connect(tmp_path / DATABASE)) as store, store:
                store.execute("UPDATE card_attempts SET pid = ?, born = ?", (left.pid, identity.born(left.pid)))
            left.stdin.close()
            await world.start()
            assert not _lives(child)
        finally:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            await left.wait()
