"""What may be asked of the gateway: the contract that adapters, commands, tools and the command line use."""
