"""The desk: the requests that adapters, commands, tools and the command line may make to the gateway."""
