"""Makes pytest's own process the mutant that TIDINGS_MUTANT names, before any test is collected."""

import os

from tests.chaos import mutants


def pytest_configure() -> None:
    mutants.become(os.environ.get(mutants.VARIABLE, ""))
