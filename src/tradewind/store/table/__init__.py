"""The messages of a stream in memory: blocks, indexes, subjects, limits, expiry."""
