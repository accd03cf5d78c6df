"""Backups: archives packed from a store, and streams restored from them."""
