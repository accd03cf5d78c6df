"""Checks the streams and buckets of a pipeline or job: whether they exist or may be created.

Owns the requests to the server before anything runs, and error messages with similar names.
"""

from __future__ import annotations

from collections.abc import Sequence

from tradewind.client.api_errors import StreamNotFoundError
from tradewind.client.errors import BucketNotFoundError
from tradewind.pipelines.definition.loading import near
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress


def ensure_stream(address: PipelineAddress, name: str, subjects: Sequence[str]) -> None:
    """The stream exists, or is made with these subjects; PipelineError names what is like it."""
    with address.connect() as connection:
        streams = connection.jetstream_manager().streams
        try:
            streams.info(name)
        except StreamNotFoundError:
            if not subjects:
                hint = near(name, streams.names())
                text = f"stream {name!r} does not exist{hint}; `create: [SUBJECT]` creates it"
                raise PipelineError(text) from None
            streams.add(name=name, subjects=list(subjects))


def ensure_bucket(address: PipelineAddress, name: str, *, may_create: bool) -> None:
    """The bucket exists, or is made."""
    with address.connect() as connection:
        buckets = connection.jetstream().kv
        try:
            buckets.open(name)
        except BucketNotFoundError:
            if not may_create:
                hint = near(name, buckets.names())
                text = f"bucket {name!r} does not exist{hint}; `create: true` creates it"
                raise PipelineError(text) from None
            buckets.create(name)


def missing_stream(address: PipelineAddress, wanted: Sequence[str]) -> str:
    """The problem with the names of streams to read; empty if all are there."""
    from fnmatch import fnmatchcase

    with address.connect() as connection:
        names = list(connection.jetstream_manager().streams.names())
    for name in wanted:
        if not any(fnmatchcase(one, name) for one in names):
            return f"stream {name!r} does not exist{near(name, names)}"
    return ""


def missing_bucket(address: PipelineAddress, name: str) -> str:
    """The same for a bucket."""
    with address.connect() as connection:
        names = list(connection.jetstream().kv.names())
    return "" if name in names else f"bucket {name!r} does not exist{near(name, names)}"
