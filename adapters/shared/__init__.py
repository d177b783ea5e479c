"""What several platforms need: HTTP both ways, accounts, proxies, files and tables."""
