"""Adapters that let programs written for other libraries use a NATS server; each is an extra."""
