"""Hosts any `pydantic_ai.Agent` behind the contract of an agent."""
