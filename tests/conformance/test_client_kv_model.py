"""Random histories of a key-value bucket against a naive model of it, on both servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tradewind.sync
from harness import ServerProcess
from tradewind.client.errors import KeyExistsError, WrongRevisionError

HISTORY = 3
KEYS = ["a", "a.b", "c/d"]
WRITES = ("put", "create", "update", "delete", "purge")

operations = st.lists(
    st.tuples(
        st.sampled_from(WRITES),
        st.sampled_from(KEYS),
        st.binary(max_size=4),
        st.sampled_from(["last", "older", "zero"]),
    ),
    max_size=20,
)

Kept = tuple[int, str, bytes]


class Model:
    """What a bucket should hold: the newest entries of each key, and all changes in order."""

    def __init__(self) -> None:
        self.kept: dict[str, list[Kept]] = {key: [] for key in KEYS}
        self.changes: list[tuple[str, int, str, bytes]] = []

    def last(self, key: str) -> int:
        return self.kept[key][-1][0] if self.kept[key] else 0

    def has_value(self, key: str) -> bool:
        return bool(self.kept[key]) and self.kept[key][-1][1] == "PUT"

    def store(self, key: str, operation: str, value: bytes) -> int:
        revision = len(self.changes) + 1
        if operation == "PURGE":
            self.kept[key] = []
        self.kept[key] = [*self.kept[key], (revision, operation, value)][-HISTORY:]
        self.changes.append((key, revision, operation, value))
        return revision


def apply(
    bucket: tradewind.sync.KeyValue, model: Model, kind: str, key: str, value: bytes, which: str
) -> None:
    """Do the same to both, and expect the same outcome."""
    wanted = {"last": model.last(key), "older": max(model.last(key) - 1, 0), "zero": 0}[which]
    if kind == "put":
        assert bucket.put(key, value) == model.store(key, "PUT", value)
    elif kind == "create":
        if model.has_value(key):
            with pytest.raises(KeyExistsError):
                bucket.create(key, value)
        else:
            assert bucket.create(key, value) == model.store(key, "PUT", value)
    elif wanted != model.last(key):
        calls: dict[str, Callable[[], object]] = {
            "update": lambda: bucket.update(key, value, wanted),
            "delete": lambda: bucket.delete(key, revision=wanted),
            "purge": lambda: bucket.purge(key, revision=wanted),
        }
        with pytest.raises(WrongRevisionError) as caught:
            calls[kind]()
        assert caught.value.revision == model.last(key)
    elif kind == "update":
        assert bucket.update(key, value, wanted) == model.store(key, "PUT", value)
    elif kind == "delete":
        bucket.delete(key, revision=wanted)
        model.store(key, "DEL", b"")
    else:
        bucket.purge(key, revision=wanted)
        model.store(key, "PURGE", b"")


def check(bucket: tradewind.sync.KeyValue, model: Model) -> None:
    """Everything that can be read is as the model says."""
    for key in KEYS:
        entry = bucket.get(key)
        kept = model.kept[key]
        assert (entry and (entry.revision, str(entry.operation), entry.value)) == (
            kept[-1] if model.has_value(key) else None
        )
        assert [(e.revision, str(e.operation), e.value) for e in bucket.history(key)] == kept
        for revision, operation, value in kept:
            found = bucket.get(key, revision=revision)
            assert (found and found.value) == (value if operation == "PUT" else None)
    assert sorted(bucket.keys()) == sorted(key for key in KEYS if model.has_value(key))
    with bucket.watch() as watcher:
        there = [(entry.revision, entry.key) for entry in watcher.initial()]
    assert there == sorted((model.last(key), key) for key in KEYS if model.kept[key])


@pytest.fixture(scope="module")
def connection(js_server: ServerProcess) -> Iterator[tradewind.sync.Connection]:
    with tradewind.sync.connect(js_server.url) as connection:
        yield connection


@settings(max_examples=12, deadline=None)
@given(steps=operations)
def test_bucket_behaves_as_its_model(
    connection: tradewind.sync.Connection, steps: list[tuple[str, str, bytes, str]]
) -> None:
    bucket = connection.jetstream().kv.create("model", history=HISTORY, storage="memory")
    try:
        model = Model()
        with bucket.watch() as watcher:
            for kind, key, value, which in steps:
                apply(bucket, model, kind, key, value, which)
            seen = [0]
            while seen[-1] < len(model.changes):
                entry = next(watcher)
                change = (entry.key, entry.revision, str(entry.operation), entry.value)
                assert model.changes[entry.revision - 1] == change
                assert entry.revision > seen[-1]
                seen.append(entry.revision)
        # What the history had no room for may have gone before it was delivered.
        assert {entry[0] for kept in model.kept.values() for entry in kept} <= set(seen)
        check(bucket, model)
    finally:
        bucket.destroy()
