"""Refusals of requests about consumers and messages: code, err_code and text, on both servers.

Which configurations are refused is in test_js_config_cases; here it is what a request meets that
does not fit to what is there already.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers_js import ApiClient

from harness import StartServer, wait_for

SECOND = 1_000_000_000
FUTURE = "2090-01-01T00:00:00Z"
PULL = {"ack_policy": "explicit"}
FROM_THREE = {**PULL, "deliver_policy": "by_start_sequence", "opt_start_seq": 3}
FROM_TIME = {**PULL, "deliver_policy": "by_start_time", "opt_start_time": "2020-01-01T00:00:00Z"}
PUSH = {**PULL, "deliver_subject": "push", "idle_heartbeat": SECOND, "flow_control": True}


def create(js: ApiClient, config: dict[str, Any], stream: str = "S", **request: Any) -> Any:
    """Code, err_code and text if the durable consumer C is refused."""
    body = {"stream_name": stream, "config": {"durable_name": "C", **config}, **request}
    return js.error(f"CONSUMER.CREATE.{stream}.C", body)


def no_update(text: str) -> list[Any]:
    return [500, 10012, text]


@pytest.fixture
def stream(js: ApiClient) -> Iterator[None]:
    js.done("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "storage": "memory"})
    return


@pytest.mark.usefixtures("stream")
@pytest.mark.parametrize(
    ("first", "change", "error"),
    [
        (FROM_THREE, {"opt_start_seq": 4}, no_update("start sequence can not be updated")),
        (FROM_TIME, {"opt_start_time": FUTURE}, no_update("start time can not be updated")),
        (PULL, {"deliver_policy": "new"}, no_update("deliver policy can not be updated")),
        (PULL, {"ack_policy": "all"}, no_update("ack policy can not be updated")),
        (PULL, {"replay_policy": "original"}, no_update("replay policy can not be updated")),
        (PULL, {"max_waiting": 7}, no_update("max waiting can not be updated")),
        (PULL, {"mem_storage": True}, no_update("storage type can not be updated")),
        (
            PULL,
            {"deliver_subject": "x"},
            no_update("can not update pull consumer to push based"),
        ),
        (
            {**PULL, "deliver_subject": "x"},
            {"deliver_subject": ""},
            no_update("can not update push consumer to pull based"),
        ),
        (PUSH, {"idle_heartbeat": 2 * SECOND}, no_update("heart beats can not be updated")),
        (PUSH, {"flow_control": False}, no_update("flow control can not be updated")),
        (PUSH, {"deliver_subject": "s.x"}, [400, 10081, "consumer deliver subject forms a cycle"]),
        (PUSH, {"deliver_subject": "other"}, None),
        (PUSH, {"rate_limit_bps": 1000}, None),
        (PULL, {"description": "other", "max_deliver": 5, "filter_subject": "s.a"}, None),
    ],
)
def test_what_of_a_consumer_can_be_changed(
    js: ApiClient, first: dict[str, Any], change: dict[str, Any], error: list[Any] | None
) -> None:
    assert create(js, first) is None
    assert create(js, {**first, **change}) == error


@pytest.mark.usefixtures("stream")
def test_actions(js: ApiClient) -> None:
    assert create(js, PULL, action="update") == [400, 10149, "consumer does not exist"]
    assert create(js, PULL, action="create") is None
    assert create(js, PULL, action="create") is None
    other = {**PULL, "description": "other"}
    assert create(js, other, action="create") == [400, 10148, "consumer already exists"]
    assert create(js, other, action="update") is None
    assert create(js, PULL, action="bad") == [
        400,
        10025,
        'invalid JSON: unknown consumer action: "bad"',
    ]


@pytest.mark.usefixtures("stream")
def test_push_consumer_that_is_listened_to_can_be_created_again(js: ApiClient) -> None:
    push = {**PULL, "deliver_subject": "out"}
    assert create(js, push) is None
    js.raw.send("SUB out 2\r\n")
    wait_for(lambda: js.done("CONSUMER.INFO.S.C").get("push_bound"), "somebody who listens")
    assert create(js, push) is None
    assert create(js, {**push, "description": "other"}) is None
    in_use = [400, 10013, "consumer name already in use"]
    assert create(js, {**push, "deliver_subject": "other"}) == in_use


@pytest.mark.usefixtures("stream")
@pytest.mark.parametrize(
    ("call", "config", "error"),
    [
        (
            "CREATE.S",
            {"durable_name": "d"},
            [400, 10020, "consumer expected to be ephemeral but a durable name was set in request"],
        ),
        (
            "DURABLE.CREATE.S.c",
            {},
            [400, 10018, "consumer expected to be durable but a durable name was not set"],
        ),
        (
            "DURABLE.CREATE.S.c",
            {"durable_name": "d"},
            [400, 10017, "consumer name in subject does not match durable name in request"],
        ),
        (
            "CREATE.S.c.s.a",
            {"filter_subject": "s.b"},
            [
                400,
                10131,
                "Consumer create request did not match filtered subject from create subject",
            ],
        ),
        ("CREATE.S.c", {"num_replicas": -1}, [400, 10133, "replicas count cannot be negative"]),
        (
            "CREATE.NONE.c",
            {"num_replicas": 2},
            [500, 10074, "replicas > 1 not supported in non-clustered mode"],
        ),
        ("CREATE.NONE.c", {"max_waiting": -1}, [404, 10059, "stream not found"]),
    ],
)
def test_names_replicas_and_subjects_of_consumers(
    js: ApiClient, call: str, config: dict[str, Any], error: list[Any]
) -> None:
    name = "NONE" if "NONE" in call else "S"
    assert (
        js.error(f"CONSUMER.{call}", {"stream_name": name, "config": {**PULL, **config}}) == error
    )


@pytest.mark.parametrize(
    ("config", "error"),
    [
        (
            {**PULL, "filter_subject": "w.>"},
            [400, 10100, "filtered consumer not unique on workqueue stream"],
        ),
        (
            {**PULL, "filter_subjects": ["w.b", "w.a"]},
            [400, 10100, "filtered consumer not unique on workqueue stream"],
        ),
        (
            PULL,
            [400, 10099, "multiple non-filtered consumers not allowed on workqueue stream"],
        ),
        (
            {"ack_policy": "none"},
            [400, 10084, "consumer in pull mode requires explicit ack policy on workqueue stream"],
        ),
        ({"ack_policy": "all"}, [400, 10098, "workqueue stream requires explicit ack"]),
        (
            {**PULL, "filter_subject": "w.b", "deliver_policy": "new"},
            [400, 10101, "consumer must be deliver all on workqueue stream"],
        ),
        (
            {**PULL, "filter_subject": "w.a", "deliver_policy": "new"},
            [400, 10101, "consumer must be deliver all on workqueue stream"],
        ),
        (
            {**PULL, "deliver_policy": "new"},
            [400, 10101, "consumer must be deliver all on workqueue stream"],
        ),
        ({**PULL, "filter_subject": "w.b"}, None),
    ],
)
def test_second_consumer_of_a_work_queue(
    js: ApiClient, config: dict[str, Any], error: list[Any] | None
) -> None:
    js.done("STREAM.CREATE.W", {"name": "W", "subjects": ["w.>"], "retention": "workqueue"})
    first = {"durable_name": "A", "ack_policy": "explicit", "filter_subject": "w.a"}
    js.done("CONSUMER.CREATE.W.A", {"stream_name": "W", "config": first})
    assert create(js, config, "W") == error


@pytest.mark.usefixtures("stream")
@pytest.mark.parametrize(
    ("config", "seq", "answer"),
    [
        (FROM_THREE, 2, [400, 10204, "invalid reset: below start seq"]),
        (FROM_THREE, 4, 4),
        (FROM_TIME, 100, 100),
        (PULL, 0, 1),
        ({**PULL, "deliver_policy": "new"}, 1, [400, 10204, "invalid reset: not allowed"]),
    ],
)
def test_reset(js: ApiClient, config: dict[str, Any], seq: int, answer: object) -> None:
    assert create(js, config) is None
    found = js.request("CONSUMER.RESET.S.C", {"seq": seq})
    assert (list(found["error"].values()) if "error" in found else found["reset_seq"]) == answer
    assert js.error("CONSUMER.RESET.S.C", b"junk") == [
        400,
        10025,
        "invalid JSON: invalid character 'j' looking for beginning of value",
    ]


@pytest.mark.usefixtures("stream")
def test_the_name_of_a_durable_consumer_is_bounded(js: ApiClient) -> None:
    name = "x" * 256
    body = {"stream_name": "S", "config": {**PULL, "durable_name": name, "name": name}}
    assert js.error(f"CONSUMER.CREATE.S.{name}", body) == [
        400,
        10102,
        "consumer name is too long, maximum allowed is 255",
    ]


@pytest.mark.usefixtures("stream")
def test_a_reset_is_answered_by_the_consumer_and_not_counted(js: ApiClient) -> None:
    assert create(js, {**PULL, "deliver_policy": "new"}) is None
    before = js.request("INFO")["api"]
    assert js.done("CONSUMER.RESET.S.C")["reset_seq"] == 1
    assert js.ask("CONSUMER.RESET.S.C", {"seq": 4}) == (
        b'{"type":"io.nats.jetstream.api.v1.consumer_reset_response","error":{"code":400,'
        b'"err_code":10204,"description":"invalid reset: not allowed"},"reset_seq":0}'
    )
    after = js.request("INFO")["api"]
    assert (after["total"] - before["total"], after["errors"] - before["errors"]) == (1, 0)


@pytest.mark.usefixtures("stream")
@pytest.mark.parametrize(
    ("call", "body", "error"),
    [
        ("CONSUMER.UNPIN.S.C", {}, [400, 10025, "invalid JSON: consumer group not specified"]),
        (
            "CONSUMER.UNPIN.S.C",
            {"group": "g"},
            [400, 10160, "Provided priority group does not exist for this consumer"],
        ),
        ("CONSUMER.UNPIN.S.NONE", {"group": "g"}, [404, 10014, "consumer not found"]),
        ("CONSUMER.UNPIN.NONE.NONE", {"group": "g"}, [404, 10059, "stream not found"]),
        ("CONSUMER.PAUSE.S.NONE", {"pause_until": FUTURE}, [404, 10014, "consumer not found"]),
        ("CONSUMER.INFO.S.NONE", {}, [404, 10014, "consumer not found"]),
        ("CONSUMER.DELETE.S.NONE", {}, [404, 10014, "consumer not found"]),
        ("CONSUMER.NAMES.NONE", {}, [404, 10059, "stream not found"]),
        ("CONSUMER.LIST.NONE", {}, [404, 10059, "stream not found"]),
        ("STREAM.INFO.NONE", {}, [404, 10059, "stream not found"]),
        ("STREAM.DELETE.NONE", {}, [404, 10059, "stream not found"]),
        ("STREAM.UPDATE.NONE", {"name": "NONE"}, [404, 10059, "stream not found"]),
        ("STREAM.PURGE.NONE", {}, [404, 10059, "stream not found"]),
        ("STREAM.MSG.DELETE.NONE", {"seq": 1}, [404, 10059, "stream not found"]),
        ("STREAM.MSG.GET.NONE", {"seq": 1}, [404, 10059, "stream not found"]),
        # A request that makes no sense is refused before its stream is looked for.
        ("STREAM.PURGE.NONE", {"seq": 1, "keep": 1}, [400, 10003, "bad request"]),
        ("STREAM.MSG.GET.NONE", {"seq": 1, "last_by_subj": "s"}, [400, 10003, "bad request"]),
        ("STREAM.MSG.GET.NONE", {"no_hdr": True}, [400, 10003, "bad request"]),
        ("STREAM.MSG.GET.S", {"last_by_subj": "s.none"}, [404, 10037, "no message found"]),
        ("STREAM.MSG.DELETE.S", {"seq": 5}, [400, 10043, "sequence 5 not found"]),
        ("STREAM.SNAPSHOT.NONE", {"deliver_subject": "a..b"}, [404, 10059, "stream not found"]),
        (
            "STREAM.SNAPSHOT.S",
            {"deliver_subject": "a.*"},
            [400, 10015, "deliver subject not valid"],
        ),
        ("STREAM.SNAPSHOT.S", {"deliver_subject": ""}, [400, 10015, "deliver subject not valid"]),
        (
            "STREAM.RESTORE.S",
            {"config": {"name": "S"}, "state": {}},
            [400, 10130, "stream name already in use, cannot restore"],
        ),
        (
            "STREAM.RESTORE.S",
            {"config": {"name": "OTHER"}, "state": {}},
            [400, 10056, "stream name in subject does not match request"],
        ),
    ],
)
def test_what_is_not_there(js: ApiClient, call: str, body: dict[str, Any], error: Any) -> None:
    assert create(js, PULL) is None
    assert js.error(call, body) == error


@pytest.mark.usefixtures("stream")
def test_a_pause_that_is_over_is_shown_until_it_is_taken_back(js: ApiClient) -> None:
    assert create(js, PULL) is None
    past = {"pause_until": "2020-01-01T00:00:00Z"}
    assert js.done("CONSUMER.PAUSE.S.C", past)["paused"] is False
    info = js.done("CONSUMER.INFO.S.C")
    assert info["config"]["pause_until"] == "2020-01-01T00:00:00Z"
    assert "paused" not in info
    js.done("CONSUMER.PAUSE.S.C")
    assert "pause_until" not in js.done("CONSUMER.INFO.S.C")["config"]


# ---------------------------------------------------------------- space


def publish(js: ApiClient, payload: bytes) -> Any:
    js.raw.send(b"PUB s.a answers %d\r\n%s\r\n" % (len(payload), payload))
    error = json.loads(js.raw.read_message()[2]).get("error")
    return list(error.values()) if error else None


@pytest.mark.parametrize(
    ("account", "server", "error"),
    [
        (
            "{ max_mem: 1000, max_file: 1000 }",
            "100000",
            [400, 10002, "resource limits exceeded for account"],
        ),
        ("enabled", "1000", [503, 10023, "insufficient resources"]),
    ],
    ids=["account", "server"],
)
@pytest.mark.parametrize("storage", ["memory", "file"])
def test_no_room_for_a_message(
    start: StartServer, tmp_path: Path, storage: str, account: str, server: str, error: list[Any]
) -> None:
    server_process = start(
        f"""
        jetstream {{ store_dir: "{tmp_path}", max_mem: {server}, max_file: {server} }}
        accounts {{ A {{ users [{{user: a, password: a}}], jetstream: {account} }} }}
        """
    )
    with ApiClient(server_process, **{"user": "a", "pass": "a"}) as js:
        js.done("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "storage": storage})
        refused = [publish(js, b"x" * 300) for _ in range(6)]
    assert error in refused
    assert refused[: refused.index(error)] == [None] * refused.index(error)
    assert set(map(str, refused[refused.index(error) :])) == {str(error)}


def test_the_first_message_of_an_account_is_bounded(
    start: StartServer, tmp_path: Path, kind: str
) -> None:
    """nats-server stores it, however large it is."""
    server_process = start(
        f"""
        jetstream {{ store_dir: "{tmp_path}" }}
        accounts {{ A {{ users [{{user: a, password: a}}], jetstream: {{ max_mem: 1000 }} }} }}
        """
    )
    with ApiClient(server_process, **{"user": "a", "pass": "a"}) as js:
        js.done("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "storage": "memory"})
        refusal = [400, 10002, "resource limits exceeded for account"]
        assert publish(js, b"x" * 5000) == (refusal if kind == "tradewind" else None)
