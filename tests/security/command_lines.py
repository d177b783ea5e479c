"""Many command lines in one process, since starting Python takes longer than most of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
# Whoever binds a port is caught in the act, and ended.
CHILD = """
import contextlib, io, json, os, signal, socket, sys
bound = []
def hook(event, arguments):
    if event == "socket.bind" and arguments[0].family != socket.AF_UNIX:
        bound.append(arguments[1][0])
        os.kill(os.getpid(), signal.SIGTERM)
        raise PermissionError(1, "caught")
sys.addaudithook(hook)
from tidings.bots.main import main
for arguments, environment in json.loads(sys.stdin.read()):
    os.environ.update(environment)
    sys.argv[1:] = arguments
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    print(json.dumps([code, out.getvalue(), err.getvalue(), bound]), flush=True)
    bound.clear()
    for name in environment:
        del os.environ[name]
"""


class Shown(NamedTuple):
    code: int
    out: str
    err: str
    # Addresses that it was about to listen on.
    bound: list[str]


def tidings(home: Path, *rows: tuple[list[str], dict[str, str]]) -> list[Shown]:
    """What the command line says to each row of arguments with an environment of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TIDINGS_")}
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        input=json.dumps(rows),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**kept, "TIDINGS_HOME": str(home), "TIDINGS_HTTP__PORT": "0"},
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [Shown(*json.loads(line)) for line in done.stdout.splitlines()]
