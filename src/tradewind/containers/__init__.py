"""Growing buffers and hash tables in C, for every compiled module. Knows nothing of messages."""
