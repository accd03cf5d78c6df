"""The client library: connections to any NATS server, Tradewind or nats-server.

The package uses only the wire protocol and the JSON API, and never imports server code.
"""
