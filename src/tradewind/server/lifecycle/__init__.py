"""The life of a server: command line and flags, process and signals, start, reload and stop."""
