"""Lake tables of streams: each stream that has a table is one, kept up to date by itself.

`table_spec` is what a user asks for; it is stored in the metadata of the stream.
"""
