"""The server without sockets: sessions, accounts, routing, liveness."""
