"""Consumers: which message is delivered next, to which client, and which are acknowledged."""
