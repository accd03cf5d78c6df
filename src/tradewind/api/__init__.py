"""The JetStream JSON API as data: errors, types, endpoints, and the rules for configurations.

It is used by the server and by clients. It never touches a socket, a disk, a clock or a stream.
"""
