"""`tradewind kv` and `tradewind object`."""
