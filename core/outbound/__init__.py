"""Deliveries: the outbox that stores them, and the courier, which is the only way to a platform."""
