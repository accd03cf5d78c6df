"""Limits that accounts and the server set to streams and consumers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from helpers_js import ApiClient, api_login
from helpers_ops import shared_server

from harness import ServerProcess

CONFIG = """
accounts {
  BOUNDED {
    users: [ {user: bounded, password: hush} ]
    jetstream { max_mem: 1000, max_file: 2000, max_streams: 2, max_consumers: 2,
                max_ack_pending: 10, max_bytes_required: true,
                mem_max_stream_bytes: 500, disk_max_stream_bytes: 1500 }
  }
  NO_MEMORY {
    users: [ {user: no_memory, password: hush} ]
    jetstream { max_mem: 0, max_file: 2000 }
  }
  OPEN {
    users: [ {user: open, password: hush} ]
    jetstream: enabled
  }
  WITHOUT { users: [ {user: without, password: hush} ] }
}
jetstream {
  store_dir: "STORE"
  max_memory_store: 10000
  max_file_store: 5000
  limits { max_ack_pending: 20, max_request_batch: 7, duplicate_window: "1s",
           default_max_consumers: 3 }
}
"""
REQUIRED = [400, 10113, "account requires a stream config to have max bytes set"]
TOO_LARGE = [400, 10122, "stream max bytes exceeds account limit max stream bytes"]
NO_STORAGE = [500, 10047, "insufficient storage resources available"]
NO_MEMORY = [500, 10028, "insufficient memory resources available"]
TOO_MANY = [400, 10027, "maximum number of streams reached"]
HOUR = 3_600_000_000_000
OVERLAP = [400, 10065, "subjects overlap with an existing stream"]


limited = shared_server(CONFIG)


@pytest.fixture
def bounded(limited: ServerProcess) -> Iterator[ApiClient]:
    with api_login(limited, "bounded") as client:
        yield client
        client.delete_streams()


def create(client: ApiClient, name: str, **config: Any) -> list[Any] | None:
    return client.error(f"STREAM.CREATE.{name}", {"name": name, **config})


def update(client: ApiClient, name: str, **config: Any) -> list[Any] | None:
    return client.error(f"STREAM.UPDATE.{name}", {"name": name, **config})


def consumer(client: ApiClient, name: str, **config: Any) -> list[Any] | None:
    body = {"stream_name": "S", "config": {"durable_name": name, **config}}
    return client.error(f"CONSUMER.CREATE.S.{name}", body)


def test_max_bytes_can_be_required_and_bounded(bounded: ApiClient) -> None:
    assert create(bounded, "S") == REQUIRED
    assert create(bounded, "S", max_bytes=1501) == TOO_LARGE
    assert create(bounded, "S", max_bytes=501, storage="memory") == TOO_LARGE
    assert create(bounded, "S", max_bytes=1500) is None
    assert update(bounded, "S") == REQUIRED
    assert update(bounded, "S", max_bytes=1501) == TOO_LARGE


def test_reservations_of_an_account_are_bounded(bounded: ApiClient) -> None:
    assert create(bounded, "S", max_bytes=1000) is None
    assert create(bounded, "T", max_bytes=1001) == NO_STORAGE
    assert create(bounded, "T", max_bytes=1001, subjects=["S"]) == NO_STORAGE
    assert create(bounded, "T", max_bytes=100, subjects=["S"]) == OVERLAP
    assert create(bounded, "T", max_bytes=600) is None
    assert update(bounded, "S", max_bytes=1401) == NO_STORAGE
    assert update(bounded, "S", max_bytes=1400) is None
    assert update(bounded, "S", max_bytes=10) is None
    assert create(bounded, "U", max_bytes=10) == TOO_MANY
    assert create(bounded, "U", max_bytes=10, subjects=["S"]) == TOO_MANY


def test_limits_of_the_account_come_before_the_configuration(bounded: ApiClient) -> None:
    """Bytes only if the request names the storage. Without, nats-server looks at them later."""
    wrong = {"subjects": ["a..b"], "storage": "file"}
    assert create(bounded, "S", max_bytes=2001, **wrong) == NO_STORAGE
    assert create(bounded, "S", max_bytes=1501, **wrong) == [500, 10052, "invalid subject"]
    assert create(bounded, "S", max_bytes=1000, num_replicas=3, storage="file") == NO_STORAGE
    too_many = [400, 10026, "maximum consumers limit reached"]
    assert create(bounded, "S", max_bytes=100, max_consumers=3, **wrong) == too_many
    assert create(bounded, "S", max_bytes=100, max_consumers=2) is None
    assert update(bounded, "S", max_bytes=100, max_consumers=3) == too_many
    assert create(bounded, "T", max_bytes=10) is None
    assert create(bounded, "S", max_bytes=100, max_consumers=2) is None
    assert create(bounded, "U", max_bytes=2001, sealed=True) == [
        500,
        10052,
        "stream configuration for create can not be sealed",
    ]
    assert create(bounded, "U", max_bytes=2001, **wrong) == TOO_MANY


def test_an_account_without_memory_stores_on_disk_only(limited: ServerProcess) -> None:
    with api_login(limited, "no_memory") as client:
        assert create(client, "S", storage="memory") == NO_MEMORY
        assert create(client, "S", max_bytes=2001) == NO_STORAGE
        assert create(client, "S", max_bytes=2000) is None
        client.delete_streams()


def test_the_server_is_bounded_for_all_accounts(limited: ServerProcess) -> None:
    with api_login(limited, "no_memory") as other, api_login(limited, "open") as client:
        assert create(other, "S", max_bytes=2000) is None
        assert create(client, "S", max_bytes=3001) == NO_STORAGE
        assert create(client, "S", max_bytes=3000) is None
        assert create(client, "T", storage="memory", max_bytes=9000) is None
        assert create(client, "U", storage="memory", max_bytes=1001) == NO_MEMORY
        for used in (other, client):
            used.delete_streams()


def test_the_window_of_duplicates_is_bounded(limited: ServerProcess) -> None:
    with api_login(limited, "open") as client:
        assert create(client, "S", duplicate_window=2 * 10**9) == [
            500,
            10052,
            "duplicates window can not be larger then server limit of 1s",
        ]
        assert create(client, "S", pedantic=True) == [
            400,
            10157,
            "pedantic mode: duplicate window limits are higher than current limits",
        ]
        answer = client.done("STREAM.CREATE.S", {"name": "S"})
        assert answer["config"]["duplicate_window"] == 10**9
        client.delete_streams()


def test_consumers_are_bounded(bounded: ApiClient) -> None:
    assert create(bounded, "S", max_bytes=10) is None
    explicit = {"ack_policy": "explicit"}
    excess = "consumer max ack pending exceeds system limit of"
    assert consumer(bounded, "c", **explicit, max_ack_pending=21) == [400, 10121, f"{excess} 20"]
    assert consumer(bounded, "c", **explicit, max_ack_pending=11) == [400, 10121, f"{excess} 10"]
    assert consumer(bounded, "c", max_batch=8) == [
        400,
        10125,
        "consumer max request batch exceeds server limit of 7",
    ]
    body = {"stream_name": "S", "pedantic": True, "config": {"durable_name": "c"}}
    assert bounded.error("CONSUMER.CREATE.S.c", body) == [
        400,
        10157,
        "pedantic mode: max_request_batch must be set if it's JetStream limits are set",
    ]
    assert consumer(bounded, "c", **explicit) is None
    config = bounded.done("CONSUMER.INFO.S.c")["config"]
    assert (config["max_ack_pending"], config["max_batch"]) == (10, 7)
    assert consumer(bounded, "d") is None
    assert consumer(bounded, "e", filter_subject="a..b") == [500, 10052, "invalid subject"]
    assert consumer(bounded, "e") == [400, 10026, "maximum consumers limit reached"]
    assert consumer(bounded, "d", description="changed") is None


def test_an_account_without_jetstream_is_told_so(limited: ServerProcess) -> None:
    with api_login(limited, "without") as client:
        refusal = [503, 10039, "JetStream not enabled for account"]
        for subject in ("INFO", "STREAM.NAMES", "STREAM.INFO.S", "CONSUMER.INFO.S.c"):
            assert client.error(subject) == refusal


def test_limits_are_shown(bounded: ApiClient) -> None:
    assert create(bounded, "S", max_bytes=1000) is None
    info = bounded.done("INFO")
    assert (info["streams"], info["reserved_storage"]) == (1, 1000)
    assert info["limits"] == {
        "max_memory": 1000,
        "max_storage": 2000,
        "max_streams": 2,
        "max_consumers": 2,
        "max_ack_pending": 10,
        "memory_max_stream_bytes": 500,
        "storage_max_stream_bytes": 1500,
        "max_bytes_required": True,
    }


TOO_MANY_CONSUMERS = [400, 10026, "maximum consumers limit reached"]


def lasting(name: str) -> dict[str, Any]:
    """A consumer that nobody uses and that is still there when many more are made."""
    threshold = {"inactive_threshold": HOUR}
    return {"name": name, "ack_policy": "explicit", "mem_storage": True, **threshold}


def consumers_made(client: ApiClient, stream: str, count: int) -> int:
    """How many of so many consumers there are before the first that is refused."""
    for index in range(count):
        request = {"stream_name": stream, "config": lasting(f"c{index}")}
        error = client.error(f"CONSUMER.CREATE.{stream}.c{index}", request)
        if error is not None:
            assert error == TOO_MANY_CONSUMERS
            return index
    return count


@pytest.mark.parametrize(
    ("user", "wanted", "shown", "made"),
    [
        ("open", None, -1, 3),
        ("open", 0, -1, 3),
        ("open", -1, -1, 3),
        ("open", 2, 2, 2),
        ("open", 5, 5, 5),
        ("bounded", None, -1, 2),
        ("bounded", 1, 1, 1),
    ],
)
def test_stream_without_a_limit_has_that_of_its_account_or_else_that_of_the_server(
    limited: ServerProcess, user: str, wanted: int | None, shown: int, made: int
) -> None:
    with api_login(limited, user) as client:
        config: dict[str, Any] = {"name": "S", "storage": "memory", "max_bytes": 100}
        if wanted is not None:
            config["max_consumers"] = wanted
        answer = client.done("STREAM.CREATE.S", config)
        assert answer["config"]["max_consumers"] == shown
        assert consumers_made(client, "S", 6) == made
        client.delete_streams()


def test_limit_of_the_server_leaves_consumers_that_are_there(limited: ServerProcess) -> None:
    with api_login(limited, "open") as client:
        config = {"name": "S", "storage": "memory", "max_bytes": 100, "max_consumers": 5}
        client.done("STREAM.CREATE.S", config)
        assert consumers_made(client, "S", 5) == 5
        answer = client.done("STREAM.UPDATE.S", {**config, "max_consumers": -1})
        assert answer["state"]["consumer_count"] == 5
        changed = {**lasting("c4"), "description": "d"}
        request = {"stream_name": "S", "config": changed}
        assert client.error("CONSUMER.CREATE.S.c4", request) is None
        request["config"] = {**changed, "name": "c5"}
        assert client.error("CONSUMER.CREATE.S.c5", request) == TOO_MANY_CONSUMERS
        client.delete_streams()


def test_stream_has_at_most_a_thousand_consumers_unless_it_says_how_many(js: ApiClient) -> None:
    js.done("STREAM.CREATE.S", {"name": "S", "storage": "memory"})
    assert consumers_made(js, "S", 1002) == 1000


FAULTS: list[dict[str, Any]] = [
    {"max_bytes": 1501},
    {"max_bytes": 501, "storage": "memory"},
    {"max_bytes": 0},
    {"subjects": ["a"]},
    {"subjects": ["not a subject"]},
    {"description": "x" * 5000},
    {"num_replicas": 3},
    {"mirror": {"name": "A"}},
    {"persist_mode": "async", "storage": "memory", "max_bytes": 1200},
]
SPECIAL_FAULTS: list[dict[str, Any]] = [{"mirror_direct": True}, {"sealed": True}]


def faulty(client: ApiClient, fault: dict[str, Any]) -> list[Any] | None:
    return create(client, "C", **{"subjects": ["c"], "max_bytes": 100, **fault})


def test_an_account_with_all_its_streams_is_told_so_whatever_else_is_wrong(
    bounded: ApiClient,
) -> None:
    assert create(bounded, "A", subjects=["a"], max_bytes=100) is None
    assert create(bounded, "B", subjects=["b"], max_bytes=100) is None
    assert [faulty(bounded, fault) for fault in FAULTS] == [TOO_MANY] * len(FAULTS)
    special = [faulty(bounded, fault) for fault in SPECIAL_FAULTS]
    assert [error and error[1] for error in special] == [10052, 10052]
    # A stream that is there already does not count.
    assert create(bounded, "A", subjects=["a"]) == REQUIRED
    assert create(bounded, "A", subjects=["a"], max_bytes=1501) == TOO_LARGE
