"""Visitors: access control, logins, and their input."""
