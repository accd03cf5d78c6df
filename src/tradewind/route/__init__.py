"""Routing by subject: the trie of subscriptions, permissions, mappings and sharing."""
