"""Real client programs against a gateway with a scripted agent, each in an environment of its own: `make clients`."""
