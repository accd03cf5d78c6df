"""The columns of all tables: messages, key-value buckets and object stores.

Owns their names, order and types, in Spark's DDL. Arrow types are derived from the DDL (`arrow`),
as is the check of a given schema. It never imports Spark or Arrow: options and the command line
need only the names.
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
