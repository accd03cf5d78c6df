"""Every error of the JetStream API: provoked on both servers, or with a reason why it cannot be.

Errors about configurations are provoked by the cases in tests/cases. Here are the others, and a
test that none is missing. The reasons are in docs/internals/CONFORMANCE.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers_faults import FaultCase, Scene, Step, both_answers, header_block, limited_servers
from helpers_fields import api
from helpers_publish_faults import BATCH, SCHEDULE
from helpers_stream_faults import PLAIN, source

from harness import ServerProcess
from js_cases import body_cases, config_cases
from tradewind.api.errors import ERROR_KINDS

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
KIBIBYTES = "x" * 65_536
BOUNDED = {**PLAIN, "max_bytes": 500}
# Where an error is provoked that needs more than a request: another server, or many messages.
ELSEWHERE = {
    10013: "test_js_errors.py",
    10023: "test_js_errors.py",
    10039: "test_js_config_limits.py",
    10062: "test_js_backups.py",
    10164: "test_js_atomic_batches.py",
    10167: "test_js_server_bounds.py",
    10172: "test_js_counters.py",
    10194: "test_js_server_bounds.py",
    10195: "test_js_server_bounds.py",
    10205: "test_js_fast_batches.py",
    10206: "test_js_fast_batches.py",
    10207: "test_js_fast_batches.py",
    10208: "test_js_fast_batches.py",
    10210: "test_js_atomic_batches.py",
    10211: "test_js_fast_batches.py",
    10214: "test_js_given_consumers.py",
    10217: "test_js_given_consumers.py",
    10225: "test_js_sourcing_consumers.py",
    10228: "test_sharing_replicas.py",
}


def request(
    call: str, body: dict[str, Any], *before: Step, user: str = "open", **fields: str
) -> FaultCase:
    """A request of the API after others; `fields` are those of its header."""
    steps = before or (("STREAM.CREATE.Z", PLAIN),)
    subject, data = api(call, body)
    header = {name.replace("_", "-"): value for name, value in fields.items()}
    return FaultCase(
        Scene(call, call, body, (), steps, user=user), subject, data, header_block(header)
    )


def message(
    fields: dict[str, str],
    config: dict[str, Any] | None = None,
    *before: Step,
    payload: str = "",
    user: str = "open",
) -> FaultCase:
    """A message for a stream with this configuration."""
    stream = {**(PLAIN if user == "open" else BOUNDED), **(config or {})}
    scene = Scene("message", "z.a", {}, (), (("STREAM.CREATE.Z", stream), *before), user=user)
    return FaultCase(scene, "z.a", payload.encode(), header_block(fields))


def consumer(config: dict[str, Any]) -> FaultCase:
    return request("CONSUMER.CREATE.Z.c", {"stream_name": "Z", "config": {"name": "c", **config}})


def stream(user: str = "open", others: str = "A", **config: Any) -> FaultCase:
    """A new stream beside others, which are named with a letter each."""
    small = {"storage": "memory", "max_bytes": 1}
    before = [(f"STREAM.CREATE.{name}", {"name": name, **small}) for name in others]
    body = {"storage": "memory", "name": "Z", **config}
    return request("STREAM.CREATE.Z", body, *before, user=user)


COUNTER = {"allow_msg_counter": True}
ATOMIC = {"allow_atomic": True}
SCHEDULES = {"allow_msg_schedules": True, "allow_msg_ttl": True}
ID: Step = ("z.a", {"Nats-Msg-Id": "one"})
GIVEN = {"consumer": {"name": "c", "deliver_subject": "d"}}
PULL: Step = ("CONSUMER.CREATE.Z.c", {"stream_name": "Z", "config": {"name": "c"}})
START = {"name": "c", "deliver_policy": "by_start_sequence", "opt_start_seq": 3}
PROVOKED: dict[int, FaultCase] = {
    10002: message({}, None, ID, payload="x" * 5000, user="bounded"),
    10015: request("STREAM.SNAPSHOT.Z", {"deliver_subject": ""}),
    10027: stream("bounded", others="ABCD", max_bytes=1),
    10037: request("STREAM.MSG.GET.Z", {"seq": 9}),
    10043: request("STREAM.MSG.DELETE.Z", {"seq": 9}),
    10054: message({}, {"max_msg_size": 10}, payload="x" * 11),
    10060: message({"Nats-Expected-Stream": "OTHER"}),
    10070: message({"Nats-Expected-Last-Msg-Id": "other"}, None, ID),
    10071: message({"Nats-Expected-Last-Sequence": "7"}, None, ID),
    10077: message({}, {"discard": "new", "max_msgs": 1}, ID),
    10097: message({"X": KIBIBYTES}),
    10107: consumer({"description": "x" * 4097}),
    10109: message({}, None, ("STREAM.UPDATE.Z", {**PLAIN, "sealed": True})),
    10110: request("STREAM.PURGE.Z", {}, ("STREAM.CREATE.Z", {**PLAIN, "deny_purge": True})),
    10111: message({"Nats-Rollup": "other"}, {"allow_rollup_hdrs": True}),
    10113: stream("bounded"),
    10122: stream("bounded", max_bytes=501),
    10125: consumer({"max_batch": 501}),
    10130: request("STREAM.RESTORE.Z", {"config": PLAIN, "state": {}}),
    10135: consumer({"metadata": {"a": "x" * 131_072}}),
    10160: request("CONSUMER.UNPIN.Z.c", {"group": "g"}, ("STREAM.CREATE.Z", PLAIN), PULL),
    10165: message({"Nats-TTL": "soon"}, {"allow_msg_ttl": True}),
    10166: message({"Nats-TTL": "1s"}),
    10168: message({"Nats-Incr": "1"}),
    10169: message({}, COUNTER),
    10170: message({"Nats-Incr": "1"}, COUNTER, payload="x"),
    10171: message({"Nats-Incr": "one"}, COUNTER),
    10174: message(BATCH),
    10175: message({"Nats-Batch-Id": "b"}, ATOMIC),
    10176: message({**BATCH, "Nats-Batch-Sequence": "2"}, ATOMIC),
    10177: message({**BATCH, "Nats-Expected-Last-Msg-Id": "one"}, ATOMIC),
    10179: message({**BATCH, "Nats-Batch-Id": "x" * 65}, ATOMIC),
    10185: request("STREAM.INFO.Z", {}, Nats_Required_Api_Level="99"),
    10188: message(SCHEDULE),
    10189: message({**SCHEDULE, "Nats-Schedule": "soon"}, SCHEDULES),
    10190: message({**SCHEDULE, "Nats-Schedule-Target": "other"}, SCHEDULES),
    10191: message({**SCHEDULE, "Nats-Schedule-TTL": "soon"}, SCHEDULES),
    10192: message({**SCHEDULE, "Nats-Rollup": "all"}, SCHEDULES),
    10193: message({"Nats-Expected-Last-Subject-Sequence-Subject": "z.b"}),
    10199: message({**BATCH, "Nats-Batch-Sequence": "2000"}, ATOMIC),
    10200: message({**BATCH, "Nats-Batch-Commit": "later"}, ATOMIC),
    10201: message({**BATCH, "Nats-Msg-Id": "one"}, ATOMIC, ID),
    10203: message({**SCHEDULE, "Nats-Schedule-Source": "z.*"}, SCHEDULES),
    10204: request(
        "CONSUMER.RESET.Z.c",
        {"seq": 1},
        ("STREAM.CREATE.Z", PLAIN),
        ("CONSUMER.CREATE.Z.c", {"stream_name": "Z", "config": START}),
    ),
    10212: message({"Nats-Scheduler": "z.b", "Nats-Schedule-Next": "later"}, SCHEDULES),
    10216: stream(sources=[
        source("A", **GIVEN),
        source("A", **GIVEN, subject_transforms=[{"src": "a", "dest": "b"}]),
    ]),
    10223: message({**SCHEDULE, "Nats-Schedule-Time-Zone": "Nowhere"}, SCHEDULES),
    10227: message({"Nats-Stream-Source": "O 1"}),
}  # fmt: skip


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ServerProcess]]:
    with limited_servers(tmp_path_factory.mktemp("both")) as servers:
        yield servers


def test_errors_are_the_same(both: list[ServerProcess]) -> None:
    codes = {id(case): code for code, case in PROVOKED.items()}
    for case, official, ours in both_answers(both, list(PROVOKED.values())):
        assert ours == official, case
        error = ours[1].get("error", {})
        kind = ERROR_KINDS[codes[id(case)]]
        assert (error.get("code"), error.get("err_code")) == (kind.code, kind.err_code), error
        pattern = re.sub(r"\\{\w+\\}", ".*", re.escape(kind.text))
        assert re.fullmatch(pattern, error["description"]), error


def test_errors_that_are_provoked_elsewhere_are_named_there() -> None:
    for code, module in ELSEWHERE.items():
        assert re.search(rf"\b{code}\b", (HERE / module).read_text()), (code, module)


def test_no_error_is_missing() -> None:
    in_cases = {case.error[1] for case in [*config_cases(), *body_cases()] if case.error}
    _, _, excused = (ROOT / "docs/internals/CONFORMANCE.md").read_text().partition("\n## Errors\n")
    unreachable = {int(code) for code in re.findall(r"\b10\d{3}\b", excused)}
    groups = (in_cases, set(PROVOKED), set(ELSEWHERE), unreachable)
    assert ERROR_KINDS.keys() == set().union(*groups)
    twice = [code for code in ERROR_KINDS if sum(code in group for group in groups) > 1]
    assert twice == []
