"""Slack workspaces: direct messages, the assistant pane, channels and threads."""
