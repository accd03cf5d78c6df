"""What is written of a configuration reads back as the same one, whatever it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tradewind.api.errors import ApiError
from tradewind.api.stream_types import StreamConfig
from tradewind.cli.declared import shapes
from tradewind.cli.declared.declaration_fields import duration_member, size_member
from tradewind.cli.declared.declaration_files import as_file, read_declaration, thing_of, yaml_text
from tradewind.cli.frame.text_formats import parse_duration_ns, parse_size
from tradewind.documents import Document
from tradewind.errors import ConfigError

texts = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=12)
ages_ns = st.one_of(st.just(0), st.integers(100_000_000, 10**16))
limits = st.one_of(st.just(-1), st.integers(1, 2**40))
metadata = st.dictionaries(texts, texts, max_size=3)
streams = st.fixed_dictionaries(
    {},
    optional={
        "description": texts,
        "subjects": st.lists(st.sampled_from(["a", "b.>", "c.*.d", "yes", "1"]), unique=True),
        "retention": st.sampled_from(["limits", "interest", "workqueue"]),
        "max_consumers": limits,
        "max_msgs": limits,
        "max_bytes": limits,
        "max_age": ages_ns,
        "max_msgs_per_subject": limits,
        "max_msg_size": st.integers(-1, 2**31 - 1),
        "discard": st.sampled_from(["old", "new"]),
        "storage": st.sampled_from(["file", "memory"]),
        "num_replicas": st.integers(0, 5),
        "no_ack": st.booleans(),
        "duplicate_window": ages_ns,
        "compression": st.sampled_from(["none", "s2"]),
        "first_seq": st.integers(0, 10**6),
        "allow_direct": st.booleans(),
        "deny_delete": st.booleans(),
        "deny_purge": st.booleans(),
        "allow_rollup_hdrs": st.booleans(),
        "allow_msg_ttl": st.booleans(),
        "subject_delete_marker_ttl": ages_ns,
        "placement": st.fixed_dictionaries({"cluster": texts, "tags": st.lists(texts)}),
        "consumer_limits": st.fixed_dictionaries({"inactive_threshold": ages_ns}),
        "republish": st.just({"src": ">", "dest": "copy.>", "headers_only": True}),
        "metadata": metadata,
    },
)
consumers = st.fixed_dictionaries(
    {},
    optional={
        "description": texts,
        "deliver_policy": st.sampled_from(["all", "last", "new", "last_per_subject"]),
        "ack_policy": st.sampled_from(["none", "all", "explicit"]),
        "ack_wait": ages_ns,
        "max_deliver": limits,
        "backoff": st.lists(ages_ns, max_size=3),
        "filter_subject": st.sampled_from(["", "a", "b.x"]),
        "replay_policy": st.sampled_from(["instant", "original"]),
        "max_waiting": st.integers(0, 1000),
        "max_ack_pending": st.integers(-1, 1000),
        "headers_only": st.booleans(),
        "max_batch": st.integers(0, 1000),
        "max_bytes": st.integers(0, 2**40),
        "inactive_threshold": ages_ns,
        "deliver_subject": st.sampled_from(["", "out.x"]),
        "sample_freq": st.sampled_from(["", "50", "100%"]),
        "mem_storage": st.booleans(),
        "metadata": metadata,
    },
)
buckets = st.fixed_dictionaries(
    {},
    optional={
        "description": texts,
        "metadata": metadata,
        "ttl": st.integers(1, 10**9).map(lambda milliseconds: milliseconds * 1_000_000),
        "max_bytes": limits,
        "storage": st.sampled_from(["file", "memory"]),
        "replicas": st.integers(1, 5),
        "compression": st.booleans(),
    },
)
kv_buckets = st.tuples(
    buckets,
    st.fixed_dictionaries(
        {},
        optional={
            "history": st.integers(1, 64),
            "max_value_size": st.integers(-1, 2**31 - 1),
            "allow_ttl": st.booleans(),
            "marker_ttl": st.integers(1, 10**6).map(lambda seconds: seconds * 10**9),
            "sources": st.lists(st.sampled_from(["one", "two"]), unique=True),
        },
    ),
).map(lambda both: both[0] | both[1])


def document_of(content: dict[str, Any]) -> Document:
    """A file as it is exported, read again."""
    sections = {"streams": {}, "kv": {}, "objects": {}} | content
    document = Document(Path("f.yaml"))
    document.parse(yaml_text(sections).encode())
    return document


def read_back(content: dict[str, Any]) -> None:
    """The content is read and written, and what is written then never changes again."""
    try:
        declaration = read_declaration([document_of(content)])
    except ConfigError:
        assume(False)  # a configuration that no server takes
    written = {thing: each.written for thing, each in declaration.things.items()}
    again = read_declaration([document_of(as_file(written))])
    assert {thing: each.written for thing, each in again.things.items()} == written
    for thing, first in declaration.things.items():
        second = again.things[thing]
        if isinstance(first.config, StreamConfig):
            assert isinstance(second.config, StreamConfig)
            assert shapes.with_stream_defaults(first.config) == shapes.with_stream_defaults(
                second.config
            )


@settings(max_examples=150)
@given(streams, consumers)
def test_streams_and_consumers(stream: dict[str, Any], consumer: dict[str, Any]) -> None:
    read_back({"streams": {"S": stream | {"consumers": {"c": consumer}}}})


@settings(max_examples=100)
@given(kv_buckets, buckets)
def test_buckets_and_stores(kv: dict[str, Any], store: dict[str, Any]) -> None:
    read_back({"kv": {"b": kv}, "objects": {"o": store}})


@settings(max_examples=100)
@given(streams)
def test_a_stream_is_written_as_its_server_shows_it(members: dict[str, Any]) -> None:
    try:
        config = shapes.read_stream(document_of({"streams": {"S": members}}), ("streams", "S"))
        shown = shapes.with_stream_defaults(config)
    except (ConfigError, ApiError):
        assume(False)
    assert thing_of("S").stream == "S"
    assert shapes.write_stream(shown) == shapes.write_stream(config)


@given(st.integers(0, 2**63 - 1))
def test_durations_are_exact(duration_ns: int) -> None:
    assert parse_duration_ns(duration_member(duration_ns), "x") == duration_ns


@given(st.one_of(st.integers(1, 2**62), st.integers(1, 2**20).map(lambda kib: kib << 10)))
def test_sizes_are_exact(size_bytes: int) -> None:
    written = size_member(size_bytes)
    assert (parse_size(written, "x") if isinstance(written, str) else written) == size_bytes
