"""Threads for work that would block the event loop: syncs, files, password checks."""
