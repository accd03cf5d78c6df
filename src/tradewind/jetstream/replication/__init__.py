"""Mirrors and sources: streams that copy the messages of others."""
