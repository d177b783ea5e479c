"""The board: cards that bots and worker processes work on."""
