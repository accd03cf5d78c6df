"""The server without sockets: sessions, accounts, routing and liveness."""
