"""One file for each requirement of the HTTP API's security: structure, not timing."""
