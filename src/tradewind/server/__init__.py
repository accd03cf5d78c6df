"""Everything that turns the broker into a running server: sockets, clock, files, configuration."""
