"""What proves that the gateway keeps its promises."""
