"""Subject -> subscribers: the trie, and who may do what on which subject."""
