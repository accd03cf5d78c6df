"""The test kit, shipped: a server without sockets and with a clock of its own."""
