"""What several platforms need: the local socket, and later the HTTP listener and markup."""
