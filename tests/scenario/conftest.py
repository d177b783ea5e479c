"""What stories share: time that the test owns, and an agent to which the test dictates."""

from __future__ import annotations

import pytest

from tests.worlds.dictated import Dictated
from tests.worlds.world import OwnedClock


@pytest.fixture
def clock() -> OwnedClock:
    return OwnedClock()


@pytest.fixture
def agent() -> Dictated:
    return Dictated()
