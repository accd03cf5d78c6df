"""Visitors: access control, logins, and what they may send."""
