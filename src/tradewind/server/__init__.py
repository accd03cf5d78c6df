"""Sockets, clock and files: everything that makes the broker a running server."""
