"""The client library: connections to any NATS server, Tradewind or nats-server.

It never imports server code: it uses only the wire protocol and the JSON API.
"""
