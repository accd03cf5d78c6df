"""The columns of everything that is read: messages, key-value buckets and object stores.

Owns their names, their order and their types, as Spark's DDL says them. What Arrow calls a type
follows from the DDL (`arrow`), and so does the check of a schema that was given. Never imports
Spark or Arrow: options and the command line need the names only.
"""

from __future__ import annotations

from typing import Final

MESSAGES: Final = {
    "stream": "string",
    "seq": "bigint",
    "subject": "string",
    "time": "timestamp",
    "headers": "map<string,array<string>>",
    "data": "binary",
}
BUCKET: Final = {
    "bucket": "string",
    "key": "string",
    "value": "binary",
    "revision": "bigint",
    "time": "timestamp",
    "operation": "string",
}
OBJECTS: Final = {
    "bucket": "string",
    "name": "string",
    "modified": "timestamp",
    "size": "bigint",
    "digest": "string",
    "content": "binary",
}
