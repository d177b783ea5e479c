"""Discord: direct messages, channels and threads, by discord.py."""
