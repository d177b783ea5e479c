"""The suites that every adapter, agent and store must pass; each is held to liars by its own tests."""

import pytest

# A suite is imported by its implementors, and its asserts should explain themselves there, too.
pytest.register_assert_rewrite("tests.contract.adapters", "tests.contract.agents", "tests.contract.stores")
