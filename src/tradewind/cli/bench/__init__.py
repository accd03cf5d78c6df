"""`tradewind bench`."""
