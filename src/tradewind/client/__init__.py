"""The client library: connections to any NATS server, Tradewind's or the official one.

Imports nothing of the server: it knows the wire protocol and the JSON API, no more.
"""
