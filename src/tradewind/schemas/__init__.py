"""Schemas of payloads, by subject: documents, checks, and what a new version may change.

Owns what a schema in the bucket of schemas is, whether a payload obeys one, and whether two
versions are compatible. Server, client and tools use it alike; it opens no connection and reads no
file. The libraries of the formats are imported with the first schema that needs them.
"""
