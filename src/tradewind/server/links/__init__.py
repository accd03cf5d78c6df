"""Sockets of sessions: listening, reading, writing, and the turns of the event loop that do it."""
