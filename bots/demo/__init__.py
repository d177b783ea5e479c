"""Needs no key: shows streaming, tools, background work and failures."""
