"""`tradewind dr`: disaster recovery of streams with a mirror on another server."""
