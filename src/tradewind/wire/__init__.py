"""Conversion between bytes and operations: the client protocol and WebSocket frames."""
