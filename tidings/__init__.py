"""Tidings: a messaging gateway for bots and agents. The packages are the folders core, adapters and bots."""
