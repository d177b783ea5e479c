"""Makes pytest's own process the mutant that TIDINGS_MUTANT names; its reports travel, its secrets are forgotten."""

import os
from collections.abc import Generator, Iterator

import pytest

from core import redaction
from core.types import mend
from tests.chaos import mutants


def pytest_configure() -> None:
    mutants.become(os.environ.get(mutants.VARIABLE, ""))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    # A story about broken text logs some, and a worker could not tell of it.
    report.sections = [(title, mend(text)) for title, text in report.sections]
    return report


@pytest.fixture(autouse=True)
def _secrets_of_one_test() -> Iterator[None]:
    """A bot's key is a secret as long as the process lives; another test may use such words."""
    yield
    redaction.forget_all()
