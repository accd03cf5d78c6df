"""The JSON API of JetStream as data: errors, types, endpoints, and the rules for configurations.

Used by the server and by clients alike. Never touches a socket, a disk, a clock or a stream.
"""
