"""Connections over WebSocket: the listener, the HTTP upgrade, and the frames of a link."""
