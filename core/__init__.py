"""The gateway itself: core knows no platform and no bot, and opens no network socket."""
