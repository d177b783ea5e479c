"""Builds the parts of the gateway, runs them, and answers at the desk."""
