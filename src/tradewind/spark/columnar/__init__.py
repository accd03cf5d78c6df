"""Columns: the tables that streams and buckets look like, and records as Arrow columns."""
