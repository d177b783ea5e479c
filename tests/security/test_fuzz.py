"""schemathesis against our own /openapi.json, for a few seconds and always the same; `make fuzz` goes on for longer."""

from pathlib import Path

from tests.security.fuzz import fuzz
from tidings.adapters.api.routes import ENDPOINTS

EXAMPLES = "4"


async def test_whatever_the_description_permits_or_forbids_is_answered_as_it_says(tmp_path: Path) -> None:
    options = ("--phases", "examples,fuzzing", "--generation-deterministic", "--max-examples", EXAMPLES)
    fuzzed = await fuzz(tmp_path, *options)
    assert fuzzed.code == 0, fuzzed.report
    # All but the description itself, which was read to begin with.
    assert f"Tested: {len(ENDPOINTS) - 1}" in fuzzed.report, fuzzed.report
    assert fuzzed.faults == []
