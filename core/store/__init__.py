"""The store of everything durable: one writer, plain SQL."""
