"""`tradewind dr`: how well streams are protected, changing over to the standby, and back."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import tradewind
from cli_outcome import Cli
from harness import wait_for
from move_kit import ACKNOWLEDGED, make_stream, numbers
from ports import free_ports
from recovery_kit import OFFICIAL, STREAM, KilledToolError, Sites, connect, wait_until_protected
from tradewind.api.times import parse_time
from tradewind.errors import TradewindError
from tradewind.recovery import (
    AsyncDisasterRecovery,
    DisasterRecovery,
    RecoveryError,
    RecoveryJournal,
    RecoveryKind,
    RecoveryState,
    RecoveryStep,
)
from tradewind.recovery.records import RECORDS
from tradewind.recovery.recovery_journal import load_recovery, save_journal
from tradewind.recovery.saved import read_saved

OLD = 60


@pytest.fixture(scope="module")
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sites]:
    kinds = getattr(request, "param", ("tradewind", "tradewind"))
    pair = Sites(tmp_path_factory.mktemp("recovery"), *kinds)
    yield pair
    pair.stop()


@pytest.fixture
def sites(shared: Sites) -> Iterator[Sites]:
    """Without streams when a test is over."""
    yield shared
    for url in shared.urls:
        with connect(url) as connection:
            streams = connection.jetstream_manager().streams
            for name in streams.names().all():
                streams.delete(name)


@pytest.fixture
def dr(sites: Sites, offline: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """dr("status", "ORDERS") with both places, in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def call(command: str, *args: str) -> Any:
        places = ["--origin", sites.urls[0], "--standby", sites.urls[1]]
        return offline("dr", command, *places, *args)

    return call


def streams_of(url: str) -> Any:
    return connect(url).jetstream_manager().streams


# --- looking ------------------------------------------------------------------------------------


def test_a_mirror_that_has_everything_is_protected_with_an_rpo_of_zero(
    sites: Sites, dr: Cli
) -> None:
    sites.make(OLD)
    [found] = dr("status", STREAM, "--rpo-max", "0s", "--json").ok().json
    assert (found["state"], found["is_connected"]) == ("protected", True)
    assert found["can_fail_over"] is True
    assert (found["lag_messages"], found["rpo_ns"]) == (0, 0)
    assert (found["origin_last_seq"], found["standby_last_seq"]) == (OLD, OLD)
    assert [
        (each["name"], each["floor"], each["recorded_floor"]) for each in found["consumers"]
    ] == [("packer", ACKNOWLEDGED, None)]
    assert dr("watch", STREAM, "--once").ok().out.startswith("ORDERS: protected, lag 0, RPO 0s\n")
    shown = dr("status", STREAM).ok().out
    assert "consumer packer is done up to 50, recorded up to 50" in shown
    assert "ORDERS: a planned failover is possible" in shown


def test_the_rpo_is_the_age_of_the_oldest_message_that_is_missing(sites: Sites, dr: Cli) -> None:
    """Removed messages are not missing, and the clock is that of the origin."""
    make_stream(sites.origin.url, STREAM, count=OLD)
    mirror = {"name": STREAM, "external": {"api": "$JS.nowhere.API", "deliver": ""}}
    with connect(sites.standby.url) as there, connect(sites.origin.url) as here:
        there.jetstream_manager().streams.add(name=STREAM, mirror=mirror)
        streams = here.jetstream_manager().streams
        for seq in (1, 2, 40):
            streams.delete_message(STREAM, seq)
        oldest = streams.get_message(STREAM, seq=3).time_ns
        before = streams.info(STREAM).ts
        result = dr("status", STREAM, "--rpo-max", "1h", "--json")
        after = streams.info(STREAM).ts
    [found] = result.json
    assert result.code == 1  # not for its RPO, but because the mirror is not connected
    assert (found["state"], found["is_connected"]) == ("unprotected", False)
    assert any("the mirror has an error" in each for each in found["problems"])
    assert found["lag_messages"] == OLD - 2
    low, high = (parse_time(each) - oldest for each in (before, after))
    assert low <= found["rpo_ns"] <= high
    assert dr("failover", STREAM, "--force").code == 1


@pytest.mark.parametrize(
    ("origin", "standby", "problem"),
    [
        (None, {}, "the origin has no stream ORDERS"),
        ({}, None, "the standby has no stream ORDERS"),
        ({}, {"subjects": ["o.>"]}, "the standby is not a mirror"),
        ({}, {"mirror": {"name": "OTHER"}}, "the standby mirrors OTHER: names must be equal"),
        ({"retention": "workqueue"}, {}, "the origin keeps messages by workqueue"),
        ({"allow_msg_counter": True}, {}, "the origin is a counter"),
        ({"sources": [{"name": "X"}]}, {}, "the origin has sources"),
        (
            {},
            {
                "mirror": {
                    "name": STREAM,
                    "external": {"api": "$JS.a.API"},
                    "consumer": {"name": "c", "deliver_subject": "copy"},
                }
            },
            "the mirror reads through a given consumer",
        ),
        (
            {},
            {"mirror": {"name": STREAM, "opt_start_seq": 5, "external": {"api": "$JS.a.API"}}},
            "the mirror does not start with the first message",
        ),
    ],
)
def test_what_stands_in_the_way_of_a_failover_is_said(
    sites: Sites,
    dr: Cli,
    origin: dict[str, Any] | None,
    standby: dict[str, Any] | None,
    problem: str,
) -> None:
    if origin is not None:
        streams_of(sites.origin.url).add(name=STREAM, **{"subjects": ["orders.>"], **origin})
    if standby is not None:
        mirror = {"mirror": {"name": STREAM, "external": {"api": sites.origin_api}}}
        streams_of(sites.standby.url).add(name=STREAM, **(standby or mirror))
    result = dr("status", STREAM)
    assert result.code == 1
    assert f"ORDERS: problem: {problem}" in result.out
    refused = dr("failover", STREAM, "--force")
    assert refused.code == 1
    assert problem in refused.err


def test_a_subject_and_a_consumer_that_are_taken_at_the_standby_are_problems(
    sites: Sites, dr: Cli
) -> None:
    sites.make(OLD)
    with connect(sites.standby.url) as connection:
        manager = connection.jetstream_manager()
        manager.streams.add(name="RIVAL", subjects=["orders.new"])
        manager.consumers.add(STREAM, durable_name="packer", ack_policy="explicit")
    shown = dr("status", STREAM)
    assert shown.code == 1
    assert "problem: stream RIVAL at the standby stores orders.>" in shown.out
    assert "problem: the standby has a consumer packer of its own" in shown.out


def test_an_origin_that_does_not_answer_exceeds_every_rpo(sites: Sites, offline: Cli) -> None:
    sites.make(OLD)
    [port] = free_ports(1)
    places = ["--origin", f"nats://127.0.0.1:{port}", "--standby", sites.standby.url]
    watched = offline("dr", "watch", STREAM, *places, "--once")
    assert watched.code == 1
    assert watched.out.startswith("ORDERS: origin away, lag ?, RPO unknown")
    shown = offline("dr", "status", STREAM, *places, "--rpo-max", "1y", "--json")
    assert (shown.code, shown.json[0]["rpo_ns"]) == (1, None)
    compared = offline("dr", "verify", STREAM, *places)
    assert compared.code == 1
    assert "comparing it needs the origin" in compared.err


def test_settings_that_differ_are_noted(sites: Sites, dr: Cli) -> None:
    sites.make(OLD, max_age=timedelta(days=2), deny_delete=True)
    shown = dr("status", STREAM).ok().out
    assert "note: deny_delete: True at the origin, False at the standby" in shown
    assert "note: max_age: " in shown


# --- comparing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_a_comparison_names_what_a_naive_one_finds(
    sites: Sites, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tradewind.recovery.contents.RANGE_MESSAGES", 10)
    draw = random.Random(seed)
    sites.make(OLD)
    kept = []
    for url in sites.urls:
        gone = set(draw.sample(range(1, OLD + 1), draw.choice([0, 1, 7, OLD // 2])))
        gone |= set(range(1, draw.choice([1, 25])))  # whole ranges
        streams = streams_of(url)
        for seq in sorted(gone):
            streams.delete_message(STREAM, seq)
        kept.append(set(range(1, OLD + 1)) - gone)
    here, there = kept
    with sites.recovery() as recovery:
        missing: list[int] = []
        found = recovery.verify(STREAM)
        for each in found.differences:
            missing += each.only_origin
            assert each.first_seq // 10 == each.last_seq // 10
    assert missing == sorted(here - there)
    assert (found.only_origin, found.only_standby) == (len(here - there), len(there - here))
    assert (found.messages, found.changed) == (len(here & there), 0)
    assert found.is_same == (here == there)
    assert found.is_covered == (here <= there)


def test_verify_fails_for_what_the_standby_lacks_and_not_for_what_the_origin_removed(
    sites: Sites, dr: Cli
) -> None:
    sites.make(OLD)
    assert "both sides hold the same" in dr("verify", STREAM).ok().out
    streams_of(sites.origin.url).delete_message(STREAM, 7)
    more = dr("verify", STREAM).ok().out
    assert "1 only at the standby (7)" in more
    assert dr("verify", STREAM, "--strict").code == 1
    streams_of(sites.standby.url).delete_message(STREAM, 9)
    less = dr("verify", STREAM, "--json")
    assert less.code == 1
    assert less.json[STREAM]["differences"][0]["only_origin"] == [9]
    assert less.json[STREAM]["is_covered"] is False


def test_messages_of_another_stream_are_said_to_differ(sites: Sites, dr: Cli) -> None:
    make_stream(sites.origin.url, STREAM, count=OLD)
    make_stream(sites.standby.url, STREAM, count=OLD)
    result = dr("verify", STREAM)
    assert result.code == 1
    assert "60 with other contents (1-20, ...)" in result.out


# --- changing over ------------------------------------------------------------------------------


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "shared",
    [("tradewind", "tradewind"), ("tradewind", OFFICIAL), (OFFICIAL, "tradewind")],
    indirect=True,
)
def test_a_stream_goes_to_the_standby_and_back_with_its_consumers(sites: Sites, dr: Cli) -> None:
    sites.make(OLD, allow_direct=True, max_msgs=10_000)
    with connect(sites.origin.url) as connection:
        consumers = connection.jetstream_manager().consumers
        consumers.add(STREAM, durable_name="late", deliver_policy="new", ack_policy="explicit")
        consumers.add(STREAM, durable_name="resting", ack_policy="explicit")
        consumers.pause(STREAM, "resting", timedelta(days=1))
    plan = dr("failover", STREAM, "--dry-run").ok().out
    assert "6. promote: The standby takes over the subjects; consumers continue there." in plan
    assert not Path("ORDERS.failover.json").exists()
    assert "nothing is missing" in dr("failover", STREAM, "--force").ok().out
    check_place(sites.standby.url, OLD)
    assert dr("status", STREAM, "--json").json[0]["state"] == "failed over"
    assert dr("failover", STREAM, "--force", "--file", "x.json").code == 1
    back = dr("failback", STREAM, "--standby-api", sites.standby_api, "--force").ok().out
    assert "both share a history up to sequence 60; the origin has 0 messages after that" in back
    assert "the origin accepts messages now, with 3 consumers" in back
    check_place(sites.origin.url, OLD + 1)
    with sites.recovery() as recovery:
        wait_until_protected(recovery)
        assert recovery.verify(STREAM).is_same
    # Each side has the settings that it had.
    assert [streams_of(url).info(STREAM).config.max_msgs for url in sites.urls] == [10_000, -1]


def check_place(url: str, count: int) -> None:
    """The stream takes a message here, as the next one, and the consumers stand where they were."""
    with connect(url) as connection:
        js, consumers = connection.jetstream(), connection.jetstream_manager().consumers
        assert js.publish("orders.new", str(count).encode()).seq == count + 1
        # nats-server tells consumers of a message behind its acknowledgement.
        pending = [count + 1 - ACKNOWLEDGED, count + 1 - OLD]
        wait_for(
            lambda: (
                [consumers.info(STREAM, each).num_pending for each in ("packer", "late")] == pending
            )
        )
        packer, late, resting = (
            consumers.info(STREAM, name) for name in ("packer", "late", "resting")
        )
        assert packer.ack_floor.stream_seq == ACKNOWLEDGED
        assert packer.num_pending == count + 1 - ACKNOWLEDGED
        assert packer.config.deliver_policy == "all"
        assert late.num_pending == count + 1 - OLD
        assert (packer.paused, late.paused, resting.paused) == (False, False, True)


def test_a_failover_can_be_rolled_back_until_the_standby_takes_messages(
    sites: Sites, dr: Cli, offline: Cli
) -> None:
    sites.make(OLD)
    path = Path("j.json").absolute()
    with sites.recovery() as recovery:
        journal = recovery.plan_failover(STREAM)
        cut_before(recovery, journal, path, RecoveryStep.PROMOTE)
    assert load_recovery(path).step is RecoveryStep.PROMOTE
    with connect(sites.origin.url) as connection, pytest.raises(TradewindError):
        connection.jetstream().publish("orders.new", b"61", timeout=1)
    assert dr("status", STREAM, "--json").json[0]["state"] == "changing"
    offline("dr", "rollback", str(path), "--force").ok()
    assert not path.exists()
    with connect(sites.origin.url) as connection:
        assert connection.jetstream().publish("orders.new", b"61").seq == OLD + 1
        info = connection.jetstream_manager().consumers.info(STREAM, "packer")
        assert (info.paused, info.ack_floor.stream_seq) == (False, ACKNOWLEDGED)
    with connect(sites.standby.url) as connection:
        assert connection.jetstream_manager().consumers.names(STREAM).all() == []
    wait_for(lambda: dr("status", STREAM).code == 0)
    dr("failover", STREAM, "--force", "--file", str(path)).ok()
    refused = offline("dr", "rollback", str(path), "--force")
    assert refused.code == 1
    assert "cannot be rolled back" in refused.err


def test_an_interrupted_failover_is_resumed_by_its_journal(
    sites: Sites, dr: Cli, offline: Cli
) -> None:
    sites.make(OLD)
    path = Path("j.json").absolute()
    with sites.recovery() as recovery:
        cut_before(recovery, recovery.plan_failover(STREAM), path, RecoveryStep.CONSUMERS)
    assert "nothing is missing" in offline("dr", "resume", str(path)).ok().out
    assert "nothing is missing" in offline("dr", "resume", str(path)).ok().out
    assert streams_of(sites.standby.url).info(STREAM).config.subjects == ["orders.>"]


@pytest.mark.parametrize("step", [RecoveryStep.CONSUMERS, RecoveryStep.PROMOTE])
def test_a_standby_that_is_gone_can_be_left_before_it_takes_over(
    sites: Sites, dr: Cli, offline: Cli, step: RecoveryStep
) -> None:
    """And not when nobody can know whether it has."""
    sites.make(OLD)
    path = Path("j.json").absolute()
    with sites.recovery() as recovery:
        cut_before(recovery, recovery.plan_failover(STREAM), path, step)
    journal = load_recovery(path)
    [journal.standby] = [f"nats://127.0.0.1:{port}" for port in free_ports(1)]
    save_journal(path, journal)
    result = offline("dr", "rollback", str(path), "--force")
    subjects = streams_of(sites.origin.url).info(STREAM).config.subjects
    if step is RecoveryStep.CONSUMERS:
        assert (result.code, subjects) == (0, ["orders.>"])
    else:
        assert result.code == 1
        assert "it is unknown whether it has taken over" in result.err
        assert subjects != ["orders.>"]


def cut_before(recovery: Any, journal: Any, path: Path, step: RecoveryStep) -> None:
    """Carry a change out up to a step."""

    def say(text: str) -> None:
        if text == f"{STREAM}: {step}":
            raise KilledToolError

    recovery._say = say
    with pytest.raises(KilledToolError):
        recovery.begin(journal, path)


def test_an_origin_that_answers_is_not_lost(sites: Sites, dr: Cli) -> None:
    sites.make(OLD)
    refused = dr("failover", STREAM, "--origin-lost", "--force")
    assert refused.code == 1
    assert "the origin responds, so it is not lost" in refused.err
    assert streams_of(sites.standby.url).info(STREAM).config.mirror is not None


def test_a_lost_origin_that_nobody_recorded_needs_its_subjects(
    sites: Sites, dr: Cli, offline: Cli
) -> None:
    sites.make(OLD)
    lost = ["failover", STREAM, "--origin-lost", "--standby", sites.standby.url, "--force"]
    refused = offline("dr", *lost)
    assert refused.code == 1
    assert "its subjects were never recorded" in refused.err
    done = offline("dr", *lost, "--subjects", "orders.>").ok().out
    assert "the standby has everything up to sequence 60, stored at 20" in done
    with connect(sites.standby.url) as connection:
        assert connection.jetstream().publish("orders.new", b"60").seq == OLD + 1


def test_a_consumer_of_the_standby_is_not_replaced_when_the_origin_is_lost(
    sites: Sites, dr: Cli, offline: Cli
) -> None:
    sites.make(OLD)
    dr("watch", STREAM, "--once").ok()
    with connect(sites.standby.url) as connection:
        consumers = connection.jetstream_manager().consumers
        consumers.add(STREAM, durable_name="packer", ack_policy="explicit")
    lost = ["failover", STREAM, "--origin-lost", "--standby", sites.standby.url, "--force"]
    refused = offline("dr", *lost)
    assert refused.code == 1
    assert "the standby has a consumer packer of its own" in refused.err
    assert streams_of(sites.standby.url).info(STREAM).config.mirror is not None


def test_a_floor_behind_the_end_of_the_standby_skips_nothing(sites: Sites, tmp_path: Path) -> None:
    """The origin has delivered what the standby never got; its sequences will be used again."""
    sites.make(OLD)
    with sites.recovery() as recovery, connect(sites.standby.url) as standby:
        recovery.record(STREAM)
        subject = f"tradewind.recovery.record.consumer.{STREAM}.packer"
        streams, js = standby.jetstream_manager().streams, standby.jetstream()
        record = streams.get_message(RECORDS, last_by_subject=subject).data
        js.publish(subject, record.replace(b'"floor":50', b'"floor":99'))
    with sites.recovery(has_origin=False) as recovery:
        recovery.failover(STREAM, tmp_path / "j.json", is_lost=True)
    with connect(sites.standby.url) as standby:
        js = standby.jetstream()
        for number in range(3):
            js.publish("orders.new", str(number).encode())
        found = [message.data for message in js.consumers.get(STREAM, "packer").fetch(3)]
    assert found == [b"0", b"1", b"2"]


def test_consumers_that_were_removed_at_the_origin_are_not_made_again(sites: Sites) -> None:
    sites.make(OLD)
    with sites.recovery() as recovery, connect(sites.origin.url) as origin:
        consumers = origin.jetstream_manager().consumers
        consumers.add(STREAM, durable_name="gone", ack_policy="explicit")
        assert len(recovery.record(STREAM).consumers) == 2
        consumers.delete(STREAM, "gone")
        recovery.record(STREAM)
    with sites.recovery(has_origin=False) as recovery:
        assert [each.name for each in recovery.status(STREAM).consumers] == ["packer"]


# --- going back ---------------------------------------------------------------------------------


def test_a_failback_without_a_failover_is_refused(sites: Sites, dr: Cli) -> None:
    sites.make(OLD)
    refused = dr("failback", STREAM, "--standby-api", "$JS.b.API", "--force")
    assert refused.code == 1
    assert "no failover to the standby is on record there" in refused.err
    assert len(numbers(sites.origin.url, STREAM)) == OLD


def test_a_failback_to_another_stream_of_the_name_touches_nothing(sites: Sites, dr: Cli) -> None:
    sites.make(OLD)
    dr("failover", STREAM, "--force").ok()
    streams_of(sites.origin.url).delete(STREAM)
    make_stream(sites.origin.url, STREAM, count=OLD)
    refused = dr("failback", STREAM, "--standby-api", "$JS.b.API", "--force")
    assert refused.code == 1
    assert "the origin is not the stream that was mirrored" in refused.err
    assert streams_of(sites.origin.url).info(STREAM).config.subjects == ["orders.>"]
    assert dr("status", STREAM, "--json").json[0]["state"] == "two writers"


def test_what_the_standby_has_removed_since_is_saved_too(
    sites: Sites, tmp_path: Path, dr: Cli
) -> None:
    """Nobody knows whether it ever had that, so it is not thrown away with the old origin."""
    sites.make(OLD)
    dr("failover", STREAM, "--force").ok()
    changed = streams_of(sites.standby.url)
    for seq in range(20, OLD + 1):
        changed.delete_message(STREAM, seq)
    streams_of(sites.origin.url).delete_message(STREAM, OLD)
    with sites.recovery() as recovery:
        journal = recovery.plan_failback(STREAM, standby_api="$JS.b.API", folder=tmp_path)
        back = recovery.begin(journal, tmp_path / "back.json")
    assert back.saved_messages == OLD - 20
    saved = [message.seq for message in read_saved(Path(back.saved_file))]
    assert saved == list(range(20, OLD))


def test_an_old_origin_with_another_history_is_fenced_and_not_deleted(
    sites: Sites, tmp_path: Path, dr: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a first look has not found it."""
    sites.make(OLD)
    dr("failover", STREAM, "--force").ok()
    streams_of(sites.origin.url).delete(STREAM)
    make_stream(sites.origin.url, STREAM, count=OLD)
    monkeypatch.setattr(DisasterRecovery, "_check_old_origin", lambda *_args: None)
    with (
        sites.recovery() as recovery,
        pytest.raises(RecoveryError, match="no common history up to sequence 60"),
    ):
        recovery.failback(STREAM, tmp_path / "back.json", standby_api="$JS.b.API")
    info = streams_of(sites.origin.url).info(STREAM)
    assert info.state.messages == OLD
    assert info.config.subjects[0].startswith("tradewind.recovery.parked.ORDERS.")
    assert list(tmp_path.glob("*.saved*")) == []


def test_an_origin_that_is_lost_again_during_its_failback_leaves_everything_at_the_standby(
    sites: Sites, dr: Cli, offline: Cli
) -> None:
    """The standby is not a mirror yet; its consumers are newer than what was recorded."""
    sites.make(OLD)
    dr("watch", STREAM, "--once").ok()
    dr("failover", STREAM, "--force").ok()
    with connect(sites.standby.url) as connection:
        manager = connection.jetstream_manager()
        manager.consumers.add(STREAM, durable_name="newcomer", ack_policy="explicit")
        for message in connection.jetstream().consumers.get(STREAM, "packer").fetch(5):
            message.ack_sync()
    path = Path("back.json").absolute()
    with sites.recovery() as recovery:
        journal = recovery.plan_failback(STREAM, standby_api="$JS.b.API", folder=path.parent)
        cut_before(recovery, journal, path, RecoveryStep.REMIRROR)
    lost = ["failover", STREAM, "--origin-lost", "--standby", sites.standby.url, "--force"]
    assert "everything up to sequence 60" in offline("dr", *lost).ok().out
    with connect(sites.standby.url) as connection:
        assert connection.jetstream().publish("orders.new", b"60").seq == OLD + 1
        message = connection.jetstream().consumers.get(STREAM, "packer").next()
        assert message.metadata.stream_sequence == ACKNOWLEDGED + 6
        manager = connection.jetstream_manager()
        assert not manager.consumers.info(STREAM, "newcomer").paused
    dr("failback", STREAM, "--standby-api", "$JS.b.API", "--force", "--ack-wait", "0").ok()
    assert len(numbers(sites.origin.url, STREAM)) == OLD + 1


def test_saved_messages_are_stored_again_once(sites: Sites, dr: Cli, offline: Cli) -> None:
    """Without what they did to others when they were published first."""
    sites.make(OLD, allow_rollup_hdrs=True)
    dr("watch", STREAM, "--once").ok()
    with sites.recovery(has_origin=False) as recovery:
        recovery.failover(STREAM, Path("j.json").absolute(), is_lost=True)
    with connect(sites.origin.url) as connection:
        connection.jetstream().publish("orders.old", b"60", headers={"Nats-Rollup": "sub"})
    shown = dr("status", STREAM)
    assert (shown.code, "two writers" in shown.out) == (1, True)
    back = dr("failback", STREAM, "--standby-api", "$JS.b.API", "--force").ok().out
    [file] = Path().glob("*.saved.jsonl")
    assert f"they will be saved in {file.absolute()}" in back
    republish = ["dr", "republish", str(file), "--to", sites.origin.url, "--stream", STREAM]
    assert offline(*republish).ok().out.startswith("1 message of")
    assert offline(*republish).ok().out.startswith("0 messages of")
    assert numbers(sites.origin.url, STREAM)[-1] == 60
    assert streams_of(sites.origin.url).info(STREAM).config.allow_rollup_hdrs


def test_a_stale_origin_is_not_recorded(sites: Sites, dr: Cli) -> None:
    """Its consumers stand in a history that ends; sequences behind that mean other messages."""
    sites.make(OLD)
    with sites.recovery() as recovery:
        recovery.record(STREAM)
    with sites.recovery(has_origin=False) as recovery:
        recovery.failover(STREAM, Path("j.json").absolute(), is_lost=True)
    with connect(sites.origin.url) as connection:
        for message in connection.jetstream().consumers.get(STREAM, "packer").fetch(5):
            message.ack_sync()
    with sites.recovery() as recovery:
        [consumer] = recovery.record(STREAM).consumers
    assert (consumer.floor, consumer.recorded_floor) == (ACKNOWLEDGED + 5, ACKNOWLEDGED)


def test_an_origin_whose_disk_was_lost_gets_everything_from_the_standby(
    sites: Sites, dr: Cli
) -> None:
    sites.make(OLD)
    dr("failover", STREAM, "--force").ok()
    streams_of(sites.origin.url).delete(STREAM)
    dr("failback", STREAM, "--standby-api", "$JS.b.API", "--force").ok()
    assert len(numbers(sites.origin.url, STREAM)) == OLD


# --- flags and errors ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["status", STREAM, "--rpo-max", "soon"], "--rpo-max must be a duration such as"),
        (["status", STREAM, "--rpo-max", "-3s"], "--rpo-max must be a duration such as"),
        (["watch", STREAM, "--every", "0s"], "--every: more than 0"),
        (["failover", STREAM, "B", "--file", "j.json"], "--file: only for one stream"),
        (
            ["failover", STREAM, "--standby", "nats://a:b@127.0.0.1:4"],
            "the URL must not contain a login",
        ),
    ],
)
def test_wrong_flags_are_named(sites: Sites, dr: Cli, args: list[str], text: str) -> None:
    if "B" in args:
        sites.make(OLD)
        args.remove("B")
        args.insert(1, STREAM)
    done = dr(*args)
    assert (done.code, text in done.err) == (2, True), done.err


def test_an_origin_is_needed_unless_it_is_lost(offline: Cli) -> None:
    done = offline("dr", "failover", STREAM, "--standby", "nats://127.0.0.1:1")
    assert done.code == 2
    assert "--origin: needed unless --origin-lost is given" in done.err


def test_a_journal_is_not_overwritten_unless_it_is_done(sites: Sites, dr: Cli) -> None:
    sites.make(OLD)
    path = Path("ORDERS.failover.json")
    journal = RecoveryJournal(id="a", stream=STREAM, kind=RecoveryKind.FAILOVER)
    save_journal(path, journal)
    done = dr("failover", STREAM, "--force")
    assert done.code == 1
    assert "already exists and is not finished" in done.err
    assert load_recovery(path) == journal
    path.write_text("precious")
    assert dr("failover", STREAM, "--force").code == 1
    assert path.read_text() == "precious"
    journal.step = RecoveryStep.DONE
    save_journal(path, journal)
    dr("failover", STREAM, "--force").ok()
    assert load_recovery(path).id != "a"


def test_nothing_is_changed_without_a_confirmation(sites: Sites, dr: Cli) -> None:
    sites.make(OLD)
    assert dr("failover", STREAM).code != 0
    assert dr("status", STREAM).ok()
    assert not Path("ORDERS.failover.json").exists()


async def test_programs_with_a_loop_change_over_too(sites: Sites, tmp_path: Path) -> None:
    sites.make(OLD)
    said: list[str] = []
    async with (
        await tradewind.connect(sites.origin.url, timeout=20) as origin,
        await tradewind.connect(sites.standby.url, timeout=20) as standby,
    ):
        recovery = AsyncDisasterRecovery(origin, standby, say=said.append, ack_seconds=1)
        assert (await recovery.record(STREAM)).can_fail_over
        assert (await recovery.verify(STREAM)).is_same
        over = await recovery.failover(STREAM, tmp_path / "over.json")
        assert (over.is_done, over.last_seq) == (True, OLD)
        assert (await recovery.status(STREAM)).state is RecoveryState.FAILED_OVER
        with pytest.raises(RecoveryError, match="the change is made"):
            await recovery.roll_back(tmp_path / "over.json")
        await recovery.failback(STREAM, tmp_path / "back.json", standby_api=sites.standby_api)
        again = await recovery.resume(tmp_path / "back.json")
        assert again.is_done
    assert said[0] == "ORDERS: follow"
    assert "ORDERS: remirror" in said
