"""The command line: `tradewind`, for any NATS server.

`frame` describes how a command is added. Commands are made of the client library and never import
the broker or the engine, so they work with the official server too.
"""
