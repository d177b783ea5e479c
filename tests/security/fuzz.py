"""Fuzzes a gateway by what its own /openapi.json says: for minutes by `make fuzz`, for seconds by test_fuzz.py."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.worlds.api import ApiWorld
from tests.worlds.world import Echo

ROOT = Path(__file__).resolve().parents[2]
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "allow_header_conformance",
    "ensure_resource_availability",
    "use_after_free",
    "needs_a_key",
    "errors_are_told_in_one_shape",
)
REQUEST_SECONDS = "20"


class Fuzzed(NamedTuple):
    code: int
    report: str
    # What the gateway logged as a fault of its own meanwhile.
    faults: list[str]


class _Faults(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


async def fuzz(home: Path, *options: str, shown: bool = False) -> Fuzzed:
    """The invariants of the store are checked at the end, too."""
    faults = _Faults()
    logging.getLogger().addHandler(faults)
    try:
        async with ApiWorld(home, Echo(), console=True) as api:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "schemathesis.cli", "--no-color", "run", f"{api.url}/openapi.json"),
                *("--header", f"Authorization: Bearer {api.key}", "--checks", ",".join(CHECKS)),
                *("--request-timeout", REQUEST_SECONDS, "--warnings", "off", "--continue-on-failure", *options),
                # It leaves files where it runs.
                cwd=home,
                env={**os.environ, "PYTHONPATH": str(ROOT), "SCHEMATHESIS_HOOKS": "tests.security.fuzz_checks"},
                stdout=None if shown else asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            try:
                out, _ = await process.communicate()
            finally:
                if process.returncode is None:
                    process.kill()
            # What is owed to the console stays so: nobody sits there.
            await api.eventually(lambda: not api.rows("SELECT 1 FROM inbox WHERE state IN ('waiting', 'running')"))
    finally:
        logging.getLogger().removeHandler(faults)
    return Fuzzed(process.returncode or 0, (out or b"").decode(), faults.lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    options = ("--seed", str(asked.seed), "--max-time", str(max(1, round(asked.minutes * 60))))
    with tempfile.TemporaryDirectory() as home:
        fuzzed = asyncio.run(fuzz(Path(home), "--phases", "examples,coverage,fuzzing,stateful", *options, shown=True))
    for line in fuzzed.faults:
        print(f"the gateway logged: {line}")
    return fuzzed.code or int(bool(fuzzed.faults))


if __name__ == "__main__":
    sys.exit(main())
