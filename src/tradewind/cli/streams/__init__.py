"""`tradewind stream` and backups."""
