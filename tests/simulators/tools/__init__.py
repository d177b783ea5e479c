"""Servers that tools speak to: a web site, and MCP servers."""
