"""What scenario tests stand in: gateways, platforms, people and fakes."""
