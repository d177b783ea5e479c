"""An agent of the library's that settings can name."""

from __future__ import annotations

from pydantic_ai import Agent

AGENT = Agent("test")
