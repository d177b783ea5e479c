"""Work outside of a person's turn: tasks, processes, schedules and the board."""
