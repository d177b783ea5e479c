"""Runs shell commands in the conversation's workspace; only for bots whose settings name it."""

from __future__ import annotations

import asyncio
import shutil
from typing import Annotated

from msgspec import Meta

from bots.assistant.tools import child, workspace
from bots.assistant.tools.tool import Arguments, Occasion, Result, Tool, ToolError, define
from core.agent import Effect

USUAL_SECONDS = 60.0
MOST_SECONDS = 300.0
OUTPUT_BYTES = 20_000
# The system takes no longer argument.
COMMAND_BYTES = 100_000

DESCRIPTION = (
    "Runs a shell command in this conversation's workspace and returns its output and exit code. Nobody can type "
    "anything into it, and what it leaves running in the background is ended with it."
)


class Command(Arguments, frozen=True):
    command: Annotated[str, Meta(min_length=1)]
    seconds: Annotated[float, Meta(ge=1, le=MOST_SECONDS)] | None = None


def tools(seconds: float = USUAL_SECONDS) -> tuple[Tool, ...]:
    """The seconds are for commands that ask for no time of their own."""

    async def act(asked: Command, occasion: Occasion) -> Result:
        return await _run(asked.command, asked.seconds or seconds)

    return (define("terminal", DESCRIPTION, Command, Effect.EFFECT, act, untrusted=True),)


async def _run(command: str, seconds: float) -> Result:
    if "\0" in command:
        raise ToolError("A command has no NUL in it.")
    if len(command.encode()) > COMMAND_BYTES:
        raise ToolError("That command is too long; write it into a file, and run that.")
    try:
        folder = await asyncio.to_thread(workspace.make_root)
        shell = await asyncio.to_thread(shutil.which, "bash") or "sh"
        ended = await child.run((shell, "-c", command), folder, seconds, OUTPUT_BYTES)
    except OSError as error:
        raise ToolError(f"The command could not be started: {error.strerror}.") from error
    output = ended.output.rstrip("\n") or "(no output)"
    if ended.code is None:
        # No error: what it wrote may be anybody's words, and only results are labelled as that.
        return Result(
            f"The command did not end within {seconds:g} s, so it was ended with everything it had started. "
            f"Its output until then:\n\n{output}"
        )
    return Result(f"Exit code {ended.code} after {ended.seconds:.1f} s.\n\n{output}")
