"""The board: cards that workers take up, one after another."""
