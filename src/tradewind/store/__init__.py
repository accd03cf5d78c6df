"""Stored messages: blocks in the format of nats-server, made durable by group commits."""
