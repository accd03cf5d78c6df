"""The common parts of `tradewind kv` and `tradewind object`: flags of buckets, and finding a
bucket.

Owns the flags with the settings of a bucket, and the error if a bucket does not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from tradewind.cli.frame.choices import OneOf
from tradewind.cli.frame.failures import EXIT_USAGE, CommandError, near
from tradewind.cli.frame.frame import Option
from tradewind.cli.frame.prompts import choose
from tradewind.cli.frame.text_formats import parse_duration_ns, parse_size
from tradewind.client.errors import BucketNotFoundError

if TYPE_CHECKING:
    from tradewind.api.stream_types import StreamInfo
    from tradewind.cli.frame.output import Columns

Bucket = TypeVar("Bucket")

StorageFlag = Annotated[
    str | None,
    Option(
        "--storage",
        help="Storage: file or memory",
        click_type=OneOf("file", "memory", also={"f": "file", "m": "memory"}),
    ),
]


@dataclass(frozen=True)
class BucketFlags:
    """Flags of buckets of both kinds that can be changed later; None means not given."""

    ttl: Annotated[
        str | None, Option("--ttl", help="Maximum age of values", metavar="DURATION")
    ] = None
    replicas: Annotated[
        int | None, Option("--replicas", min=1, max=5, help="Number of replicas")
    ] = None
    max_bucket_size: Annotated[
        str | None, Option("--max-bucket-size", help="Maximum size of the bucket", metavar="BYTES")
    ] = None
    description: Annotated[
        str | None, Option("--description", help="Description of the bucket")
    ] = None
    compress: Annotated[
        bool | None, Option("--compress/--no-compress", help="Compress data on disk")
    ] = None
    tags: Annotated[
        list[str] | None,
        Option("--tags", help="Place on servers with this tag", show_default=False),
    ] = None
    cluster: Annotated[str | None, Option("--cluster", help="Place in this cluster")] = None
    metadata: Annotated[
        list[str] | None,
        Option("--metadata", help="Metadata, KEY=VALUE", metavar="KEY=VALUE"),
    ] = None


def common_settings(flags: BucketFlags, storage: str | None = None) -> dict[str, Any]:
    """The settings of the client library that these flags ask for; what is not given is absent."""
    size = flags.max_bucket_size
    settings: dict[str, Any] = {
        "ttl": None if flags.ttl is None else seconds(flags.ttl, "--ttl"),
        "replicas": flags.replicas,
        "max_bytes": None if size is None else parse_size(size, "--max-bucket-size"),
        "description": flags.description,
        "storage": storage,
        "compression": flags.compress,
        "metadata": _pairs(flags.metadata) if flags.metadata else None,
    }
    if flags.tags or flags.cluster:
        from tradewind.api.stream_types import Placement

        settings["placement"] = Placement(cluster=flags.cluster or "", tags=flags.tags or [])
    return {name: value for name, value in settings.items() if value is not None}


def seconds(text: str, flag: str) -> float:
    """Seconds of a duration."""
    return parse_duration_ns(text, flag) / 1e9


def _pairs(texts: list[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise CommandError(f"--metadata {text!r}: write KEY=VALUE", exit_code=EXIT_USAGE)
        pairs[key] = value
    return pairs


def find_bucket(
    command: str, bucket: str, names: Callable[[], Iterable[str]], find: Callable[[str], Bucket]
) -> Bucket:
    """A bucket; without a name one that the user chooses, and near names if there is none."""
    if not bucket:
        known = sorted(names())
        if not known:
            raise CommandError("no buckets exist", f"create one: tradewind {command} add NAME")
        bucket = choose("Select a Bucket", known, flag="the name of a bucket")
    try:
        return find(bucket)
    except BucketNotFoundError:
        raise CommandError(
            f"bucket {bucket!r} does not exist{near(bucket, names())}",
            f"create it: tradewind {command} add {bucket}",
            f"see all:   tradewind {command} ls",
        ) from None


def show_cluster(columns: Columns, info: StreamInfo) -> None:
    """Add the leader and replicas of a bucket's stream, if the server is in a cluster."""
    cluster = info.cluster
    if cluster is None or not cluster.name:
        return
    columns.section("Cluster Information")
    columns.row("Name", cluster.name)
    columns.row("Leader", cluster.leader)
    for peer in cluster.replicas or []:
        state = "current" if peer.current else "outdated"
        columns.row("Replica", f"{peer.name}, {'OFFLINE' if peer.offline else state}")
