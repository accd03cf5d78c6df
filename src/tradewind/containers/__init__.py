"""Growing buffers and hash tables in C, for all compiled modules. They never know of messages."""
