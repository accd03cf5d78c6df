"""Everything that a stream can do to its messages, in any order: after each commit the chain in the
files explains exactly the messages that are there.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from store_chains import chain_of, chained, checkpoint, verify_chain
from tradewind.store.contract import StoreLimits
from tradewind.testing.fake_disk import SimulatedDisk

SEGMENT = 8
subjects = st.sampled_from([b"a", b"b", b"c.d"])
limits = st.builds(
    StoreLimits,
    msgs_max=st.sampled_from([0, 3, 8]),
    bytes_max=st.sampled_from([0, 400]),
    age_max_ns=st.sampled_from([0, 10]),
    subject_msgs_max=st.sampled_from([0, 1, 3]),
    message_ttl=st.just(value=True),
)
steps = st.one_of(
    st.tuples(st.just("store"), subjects, st.integers(0, 90), st.sampled_from([0, 5])),
    st.tuples(st.just("remove"), st.integers(0, 20), st.booleans()),
    st.tuples(st.just("purge"), st.one_of(st.just(b""), subjects), st.integers(0, 5)),
    st.tuples(st.just("compact"), st.integers(0, 12)),
    st.tuples(st.just("skip"), st.integers(1, 4)),
    st.tuples(st.just("limits"), limits),
    st.tuples(st.just("expire")),
    st.tuples(st.just("reopen")),
    st.tuples(st.just("checkpoint")),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(steps, max_size=30), st.sampled_from(["sha256", "blake3"]))
def test_chain_explains_what_is_there_after_every_step(
    story: list[tuple[object, ...]], algorithm: str
) -> None:
    disk, now_ns, rule = SimulatedDisk(), 100, StoreLimits(message_ttl=True)
    settings_: dict[str, Any] = {
        "algorithm": algorithm,
        "segment_entries": SEGMENT,
        "block_bytes_max": 500,
    }
    store, _ = chained(disk, limits=rule, **settings_)
    links: list[bytes] = []
    for name, *arguments in story:
        now_ns += 1
        table = store.table
        match name, *arguments:
            case "store", bytes(subject), int(size), int(ttl_ns):
                header = b"NATS/1.0\r\nNats-TTL: 5ns\r\n\r\n" if ttl_ns else b""
                table.store(subject, header, bytes(size), now_ns, ttl_ns)
            case "remove", int(back), bool(erase):
                table.remove(max(table.last_seq - back, 0), erase=erase)
            case "purge", bytes(pattern), int(keep):
                table.purge(pattern, keep=keep)
            case "compact", int(more):
                table.compact(table.first_seq + more)
            case "skip", int(more):
                table.skip(table.last_seq + more, now_ns)
            case "limits", StoreLimits() as rule:
                table.set_limits(rule)
                table.apply_limits(now_ns)
            case ("expire",):
                table.expire(now_ns)
            case ("reopen",):
                store.close()
                store, _ = chained(disk, limits=rule, **settings_)
            case ("checkpoint",) if chain_of(store).unchecked:
                checkpoint(store)
        store.commit()
        before, links = links, verify_chain(store, segment_entries=SEGMENT)
        assert links[: len(before)] == before, "entries never change"
