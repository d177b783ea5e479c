"""Where everything durable lives: one writer, plain SQL."""
