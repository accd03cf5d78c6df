"""`tradewind consumer`."""
