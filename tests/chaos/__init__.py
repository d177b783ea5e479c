"""Kills a real gateway at every commit and asks the platform what became of each message."""
