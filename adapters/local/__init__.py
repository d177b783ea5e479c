"""The Unix socket in the home, by which the command line speaks to a running gateway."""
