"""Streams and consumers: management, publishing with acknowledgements, reading."""
