"""`tradewind pub`, `request`, `reply` and `sub`."""
