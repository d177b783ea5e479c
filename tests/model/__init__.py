"""A Hypothesis state machine over inbox, run and outbox, which crashes the real core at its commits."""
