"""The machine: local and remote folders, folders private to a user, signals."""
