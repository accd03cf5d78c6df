"""Streams and consumers: administration, publishing with acknowledgements, reading."""
