"""Servers and accounts: state, checks, reports, events."""
