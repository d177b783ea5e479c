"""Runs shell commands in the conversation's workspace; only for bots whose settings name the tool."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from tidings.bots.assistant.tools import workspace
from tidings.bots.assistant.tools.tool import Arguments, Occasion, Result, Tool, ToolError, define
from tidings.core import context
from tidings.core.agent import Effect
from tidings.core.desk.work import Launch, Manner
from tidings.core.errors import Overdrawn, Unfenced, Unkeepable, Unstored
from tidings.core.roles import Permission
from tidings.core.work.processes import foreground

USUAL_SECONDS = 60.0
MOST_SECONDS = 300.0
OUTPUT_BYTES = 20_000
# The operating system refuses longer arguments.
COMMAND_BYTES = 100_000

DESCRIPTION = (
    "Runs a shell command in this conversation's workspace and returns its output and exit code. It gets "
    "no input, and what it leaves running in the background is ended with it. What takes longer than a few "
    "minutes, or should go on after your answer, is run with background=true and looked after with the tool process."
)

HEADLESS = (
    "Nothing was started. This is an errand without a person: a process in the background would outlive it with "
    "no one to look after it. Run the command without background and wait for its end."
)
UNTOLD = (
    "Nothing was started. Nothing can be delivered to this conversation after your answer, so "
    "notify_on_complete and watch_patterns cannot be kept here. Say so, and either run the command and wait for it, or "
    "run it with background=true alone and look after it with the tool process."
)
TOLD = {
    Manner.TELL: "This conversation is told when it ends, and how.",
    Manner.WAKE: "You get a message here when it ends, with the end of its output, and can go on then.",
    Manner.NOTHING: "No notice follows when it ends: check on it with the tool process.",
}


class Command(Arguments, frozen=True):
    command: Annotated[str, Meta(min_length=1)]
    seconds: (
        Annotated[
            float,
            Meta(ge=1, description=f"When it is ended at the latest; at most {MOST_SECONDS:g} in the foreground."),
        ]
        | None
    ) = None
    background: Annotated[bool, Meta(description="Returns at once, and the command goes on.")] = False
    notify_on_complete: Annotated[
        bool | Literal["tell", "wake"],
        Meta(
            description="For the background: tell (or true) tells this conversation when it has ended; wake gives you "
            "a message then, so that you can go on."
        ),
    ] = False
    watch_patterns: Annotated[
        tuple[str, ...],
        Meta(
            description="For the background: regular expressions. Lines of the output in which one is found are told "
            "as notify_on_complete says, which is tell unless given; not more often than every 10 s and 20 times."
        ),
    ] = ()

    @property
    def manner(self) -> Manner:
        if self.notify_on_complete == "wake":
            return Manner.WAKE
        return Manner.TELL if self.notify_on_complete or self.watch_patterns else Manner.NOTHING


def tools(seconds: float = USUAL_SECONDS) -> tuple[Tool, ...]:
    """`seconds` is the time limit of commands that do not ask for one."""

    async def act(asked: Command, occasion: Occasion) -> Result:
        _check(asked)
        if asked.background:
            return await _launch(asked, occasion)
        return await _run(asked.command, asked.seconds or seconds, occasion)

    return (define("terminal", DESCRIPTION, Command, Effect.EFFECT, Permission.WORK, act, untrusted=True),)


def _check(asked: Command) -> None:
    if "\0" in asked.command:
        raise ToolError("A command has no NUL in it.")
    if len(asked.command.encode()) > COMMAND_BYTES:
        raise ToolError("That command is too long; write it into a file, and run that.")
    if asked.background:
        return
    if asked.manner is not Manner.NOTHING:
        raise ToolError("Nothing was started: notify_on_complete and watch_patterns are for background=true.")
    if asked.seconds and asked.seconds > MOST_SECONDS:
        raise ToolError(f"the arguments are wrong: what takes longer than {MOST_SECONDS:g} s needs background=true")


async def _launch(asked: Command, occasion: Occasion) -> Result:
    """Starts a command in the background, after checking that its promises can be kept."""
    session = context.current()
    if session.errand is not None:
        raise ToolError(HEADLESS)
    if asked.manner is not Manner.NOTHING and not session.can.async_delivery:
        raise ToolError(UNTOLD)
    try:
        shell, folder = await _ground()
        launch = Launch(
            command=(shell, "-c", asked.command),
            title=asked.command,
            folder=folder,
            environment=context.child_environment(),
            manner=asked.manner,
            patterns=asked.watch_patterns,
            seconds=asked.seconds or 0.0,
            key=f"terminal/{occasion.key}",
        )
        task = await occasion.desk.processes.launch(launch)
        fence = await occasion.desk.processes.fence.describe()
    except (Overdrawn, Unfenced, Unkeepable, Unstored) as error:
        raise ToolError(f"Nothing was started: {error}.") from error
    except OSError as error:
        raise ToolError(f"The command could not be started: {error.strerror}.") from error
    return Result(f"It runs in the background as {task}. {TOLD[asked.manner]} (Fence: {fence}.)")


async def _ground() -> tuple[str, Path]:
    return await asyncio.to_thread(shutil.which, "bash") or "sh", await asyncio.to_thread(workspace.make_root)


async def _run(command: str, seconds: float, occasion: Occasion) -> Result:
    try:
        shell, folder = await _ground()
        fence = occasion.desk.processes.fence
        enclosed = await fence.around((shell, "-c", command), folder, context.child_environment())
        ended = await foreground.run(enclosed, seconds, OUTPUT_BYTES)
    except Unfenced as error:
        raise ToolError(f"Nothing was started: {error}.") from error
    except OSError as error:
        raise ToolError(f"The command could not be started: {error.strerror}.") from error
    output = ended.output.rstrip("\n") or "(no output)"
    if ended.code is None:
        # A result rather than an error, because only results are labelled as other people's words.
        return Result(
            f"The command did not end within {seconds:g} s, so it was ended with everything it had started. "
            f"Its output until then:\n\n{output}\n\n(Fence: {enclosed.words}.)"
        )
    return Result(f"Exit code {ended.code} after {ended.seconds:.1f} s.\n\n{output}\n\n(Fence: {enclosed.words}.)")
