"""Bytes <-> operations: the client protocol and WebSocket frames."""
