"""`tradewind cluster`: a nats-server cluster in one command."""
