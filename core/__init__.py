"""The gateway: knows no platform and no bot, and opens no socket."""
