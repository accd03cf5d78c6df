"""Visitors: who may come in, from where, and what they may send."""
