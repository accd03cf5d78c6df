"""TLS: contexts from settings, connections over memory buffers, and the schedule of handshakes."""
