"""The paper platform: a platform of the tests' own, with every capability to choose from."""
