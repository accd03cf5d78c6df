"""The command line: `tradewind`, for any NATS server.

`frame` describes how to add a command. Commands use the client library and never import the broker
or the engine, so they work with nats-server too.
"""
