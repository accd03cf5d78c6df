"""The ways to read a stream (block files, network, backups), and the choice between them."""
