"""The command line in this process, so that a story is not mostly starts of Python.

    code, said = await command(tmp_path, "people", "admit", "telegram:7")

The code is 2 for a wrong command line; what is said has single spaces, on either stream.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from typer.testing import CliRunner

from tidings.bots import main
from tidings.bots.cli import app
from tidings.core.errors import TidingsError


async def command(home: Path, *arguments: str) -> tuple[int, str]:
    code, said = await lines(home, *arguments)
    return code, " ".join(said.split())


async def lines(home: Path, *arguments: str) -> tuple[int, str]:
    asked = ["--home", str(home), *arguments]
    result = await asyncio.to_thread(CliRunner().invoke, app.app, asked, obj=main.place)
    if result.exception is not None and not isinstance(result.exception, TidingsError | SystemExit):
        raise result.exception
    said = f"{result.exception}" if isinstance(result.exception, TidingsError) else result.stderr
    return result.exit_code, result.stdout + said
