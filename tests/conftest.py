"""Makes pytest's own process the mutant that TIDINGS_MUTANT names; homes are in memory, reports travel, secrets go."""

import gc
import os
import shutil
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.chaos import mutants
from tidings.core import redaction
from tidings.core.types import make_storable

# A file system in memory: its fsync costs nothing, and no test pulls the plug of a machine.
MEMORY = Path("/dev/shm")
# In a container it may be tiny.
MEMORY_BYTES = 1024**3


def pytest_configure() -> None:
    mutants.become(os.environ.get(mutants.VARIABLE, ""))
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > MEMORY_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def pytest_collection_finish() -> None:
    # Thousands of tests and whole libraries stay to the end: nobody need look through them again and again.
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    # A story about broken text logs some, and a worker could not tell of it.
    report.sections = [(title, make_storable(text)) for title, text in report.sections]
    return report


@pytest.fixture(autouse=True)
def _secrets_of_one_test() -> Iterator[None]:
    """A bot's key is a secret as long as the process lives; another test may use such words."""
    yield
    redaction.forget_all()
