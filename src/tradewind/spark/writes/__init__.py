"""Writes as Spark calls them: each row is stored exactly once."""
