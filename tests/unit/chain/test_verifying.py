"""Verification: an untouched chain is proved, and every single change is named."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chain_kit import KEY, OTHER_KEY, ReferenceChain, Stored, chain_of, stored
from chain_kit import histories as chains
from tradewind.chain import chain_entries, chain_folder, checkpoints, offline
from tradewind.chain.chain_entries import MESSAGE, REMOVAL, ChainRecord, link_of
from tradewind.chain.chain_folder import ChainFolder
from tradewind.chain.offline import verify_folder
from tradewind.chain.passes import ChainPass
from tradewind.chain.report import ChainReport
from tradewind.chain.signed_heads import SignedHead, signed_heads_in
from tradewind.chain.verifier import ChainedMessage, ChainVerifier

FEW = settings(max_examples=30)


def chained(message: Stored) -> ChainedMessage:
    return ChainedMessage(
        message.sequence, message.time_ns, message.subject, message.header, message.payload
    )


def check(
    chain: ReferenceChain,
    messages: dict[int, Stored] | None = None,
    *,
    copies: dict[int, Stored] | None = None,
    batch: int = 3,
    **options: object,
) -> ChainReport:
    """The report on a chain and what is stored, read in small pieces."""
    found = chain.live if messages is None else messages
    left = [chained(found[sequence]) for sequence in sorted(found)]
    records = list(chain.records)
    options = {"before": chain.before, "has_all_heads": True, **options}
    verifier = ChainVerifier(
        chain.stream,
        chain.created,
        chain.algorithm,
        signed_heads=signed_heads_in(iter(enumerate(chain.lines)), "checkpoints"),
        **options,  # type: ignore[arg-type]
    )
    joined = ChainPass(verifier, covers_all=True)
    while needs := joined.needs:
        if needs == "entries":
            taken, records = records[:batch], records[batch:]
            joined.take_entries(taken)
        else:
            part, left = left[:batch], left[batch:]
            joined.take_messages(part, is_last=not left)
    verifier.finish()
    return verifier.conclude({key: chained(value) for key, value in (copies or {}).items()})


def kinds(report: ChainReport) -> list[tuple[str, int, int]]:
    return [(fault.kind, fault.sequence, fault.last_sequence) for fault in report.faults]


@FEW
@given(chains(), st.integers(1, 50))
def test_any_untouched_history_is_intact(chain: ReferenceChain, batch: int) -> None:
    report = check(chain, batch=batch)
    assert report.faults == []
    assert report.is_intact
    assert report.size == len(chain.records)
    assert report.messages == len(chain.live)
    assert report.checkpoints == len(chain.lines)
    removed = {name: number for name, number in report.removed.items() if name != "undone"}
    undone = report.removed.get("undone", 0)
    assert sum(removed.values()) - undone == len(chain.gone)
    signed = [checkpoints.decode(line) for line in chain.lines]
    assert report.covered_size == (signed[-1].size if signed else 0)
    assert report.proved_sequence == (signed[-1].last_seq if signed else 0)


parts = st.sampled_from(
    [
        ("time", {"time_ns": 5}),
        ("subject", {"subject": b"orders.forged"}),
        ("headers", {"header": b"NATS/1.0\r\nForged: yes\r\n\r\n"}),
        ("payload", {"payload": b"forged"}),
    ]
)


def covered(chain: ReferenceChain, sequence: int) -> bool:
    return any(checkpoints.decode(line).last_seq >= sequence for line in chain.lines)


@FEW
@given(chains(), st.data(), parts)
def test_a_changed_message_is_named_and_a_second_copy_tells_the_part(
    chain: ReferenceChain, data: st.DataObject, part: tuple[str, dict[str, object]]
) -> None:
    if not chain.live:
        return
    sequence = data.draw(st.sampled_from(sorted(chain.live)))
    name, change = part
    messages = {**chain.live, sequence: replace(chain.live[sequence], **change)}
    report = check(chain, messages)
    assert kinds(report) == [("changed", sequence, sequence)]
    assert report.faults[0].parts == ("content",)
    assert report.faults[0].text == f"sequence {sequence}: content changed"
    assert chain.records[report.faults[0].index].sequence == sequence
    assert report.proved_sequence < sequence
    told = check(chain, messages, copies=chain.live)
    assert told.faults[0].parts == (name,)
    # A copy that was changed too is no evidence.
    lied = check(chain, messages, copies={sequence: stored(sequence, payload=b"other")})
    assert lied.faults[0].parts == ("content",)


@FEW
@given(chains(), st.data())
def test_a_removed_message_is_named(chain: ReferenceChain, data: st.DataObject) -> None:
    if not chain.live:
        return
    sequence = data.draw(st.sampled_from(sorted(chain.live)))
    messages = {key: value for key, value in chain.live.items() if key != sequence}
    report = check(chain, messages)
    assert kinds(report) == [("removed", sequence, sequence)]
    assert report.proved_sequence < sequence


@FEW
@given(chains(), st.data())
def test_an_inserted_message_is_named(chain: ReferenceChain, data: st.DataObject) -> None:
    """One for which there never was an entry."""
    known = {record.sequence for record in chain.records}
    free = [number for number in range(1, max(known)) if number not in known][:50]
    if not free:
        return
    sequence = data.draw(st.sampled_from(free))
    report = check(chain, {**chain.live, sequence: stored(sequence)})
    assert kinds(report) == [("inserted", sequence, sequence)]


@FEW
@given(chains(), st.data())
def test_a_removed_message_that_is_back_is_named(
    chain: ReferenceChain, data: st.DataObject
) -> None:
    if not chain.gone:
        return
    sequence = data.draw(st.sampled_from(sorted(chain.gone)))
    report = check(chain, {**chain.live, sequence: chain.gone[sequence]})
    assert kinds(report) == [("returned", sequence, sequence)]


@FEW
@given(chains(), st.data(), st.booleans())
def test_exchanged_messages_are_named(
    chain: ReferenceChain, data: st.DataObject, keeps_times: bool
) -> None:
    if len(chain.live) < 2:
        return
    both = st.lists(st.sampled_from(sorted(chain.live)), min_size=2, max_size=2, unique=True)
    one, other = sorted(data.draw(both))
    first, second = chain.live[one], chain.live[other]
    if keeps_times:
        first, second = (
            replace(first, time_ns=second.time_ns),
            replace(second, time_ns=first.time_ns),
        )
    messages = {
        **chain.live,
        one: replace(second, sequence=one),
        other: replace(first, sequence=other),
    }
    report = check(chain, messages)
    assert kinds(report) == [("reordered", one, one), ("reordered", other, other)]
    assert f"is stored as sequence {other}" in report.faults[0].text


@FEW
@given(chains(), st.integers(1, 5))
def test_messages_behind_the_chain_are_counted_and_no_fault(
    chain: ReferenceChain, more: int
) -> None:
    last = chain.last_sequence
    report = check(
        chain, {**chain.live, **{last + n: stored(last + n) for n in range(1, more + 1)}}
    )
    assert report.is_intact
    assert report.uncovered == more


def relinked(chain: ReferenceChain, start: int) -> None:
    """All links from an entry on, as somebody would make them who wants to hide a change."""
    before = chain.records[start - 1].link if start else chain.before
    for index in range(start, len(chain.records)):
        record = chain.records[index]
        everything = {**chain.gone, **chain.live}
        body = record.body if record.kind != MESSAGE else everything[record.sequence].body()
        before = link_of(chain.digest, before, record.kind, body)
        chain.records[index] = record._replace(link=before)


@FEW
@given(st.integers(1, 30), st.integers(1, 7), st.data())
def test_a_rewritten_chain_does_not_fit_its_checkpoints(
    messages: int, every: int, data: st.DataObject
) -> None:
    chain = chain_of(messages, every)
    changed = data.draw(st.integers(1, messages))
    chain.live[changed] = stored(changed, payload=b"forged")
    relinked(chain, changed - 1)
    report = check(chain)
    good = (changed - 1) // every
    if good == len(chain.lines):  # nothing signed covers it
        assert report.is_intact
    else:
        assert [fault.kind for fault in report.faults] == ["checkpoint"]
        wrong = len(chain.lines) - good - 1
        text = report.faults[0].text
        assert f"checkpoint {good + 1} " in text
        assert f"entries {good * every} to {(good + 1) * every - 1} are not those" in text
        assert (f"nor do {wrong} after it" in text) == bool(wrong)
    assert report.proved_sequence == good * every
    assert report.covered_size == good * every


@FEW
@given(st.integers(2, 30), st.integers(1, 7), st.data())
def test_a_changed_link_is_named(messages: int, every: int, data: st.DataObject) -> None:
    chain = chain_of(messages, every)
    index = data.draw(st.integers(0, messages - 1))
    record = chain.records[index]
    chain.records[index] = record._replace(link=bytes(32))
    report = check(chain)
    faults = [fault for fault in report.faults if fault.kind != "checkpoint"]
    is_signed = index // every < len(chain.lines)
    assert is_signed == any(fault.kind == "checkpoint" for fault in report.faults)
    if index == messages - 1 and not is_signed:
        # Without a later entry and a checkpoint nobody can tell the message from its link.
        assert kinds(report) == [("changed", messages, messages)]
    else:
        assert [(fault.kind, fault.index) for fault in faults] == [("entry", index)]
    assert report.proved_sequence == index // every * every


@FEW
@given(st.integers(3, 30), st.data())
def test_an_entry_that_was_cut_out_is_named(messages: int, data: st.DataObject) -> None:
    """With its message or without: the last checkpoint covers more entries than there are."""
    chain = chain_of(messages, every=messages)
    index = data.draw(st.integers(0, messages - 2))
    removed = chain.records.pop(index)
    report = check(chain)
    assert [(fault.kind, fault.index) for fault in report.faults] == [
        ("entry", index),
        ("checkpoint", messages - 1),
    ]
    text = " ".join(fault.text for fault in report.faults)
    assert f"the entry of sequence {removed.sequence} was cut out of the chain" in text
    assert "its end was cut off" in text
    del chain.live[removed.sequence]
    gone = check(chain)
    assert not gone.is_intact
    assert gone.proved_sequence == 0


@FEW
@given(st.integers(3, 30), st.data())
def test_an_entry_that_was_put_in_is_named(messages: int, data: st.DataObject) -> None:
    chain = chain_of(messages, every=messages)
    index = data.draw(st.integers(1, messages - 1))
    body = chain_entries.removal_body(1, 1, [(1, 1)])
    link = link_of(chain.digest, chain.records[index - 1].link, REMOVAL, body)
    chain.records.insert(index, ChainRecord(REMOVAL, 0, body, link))
    report = check(chain)
    found = {(fault.kind, fault.index) for fault in report.faults}
    assert found == {("entry", index), ("checkpoint", messages), ("returned", -1)}
    assert any("was inserted into the chain" in fault.text for fault in report.faults)


@FEW
@given(st.integers(3, 30), st.data())
def test_a_changed_removal_is_named(messages: int, data: st.DataObject) -> None:
    """Somebody removes a message and lets an old removal say so."""
    chain = chain_of(messages, every=0)
    first = data.draw(st.integers(1, messages - 1))
    chain.remove((first, first))
    chain.add(stored(messages + 1))
    chain.checkpoint()
    index = messages
    body = chain_entries.removal_body(1, 1, [(first, first + 1)])
    chain.records[index] = chain.records[index]._replace(body=body)
    del chain.live[first + 1]
    report = check(chain)
    assert [(fault.kind, fault.index) for fault in report.faults] == [("entry", index)]
    assert "its content was changed" in report.faults[0].text


def test_entries_in_another_order_are_named() -> None:
    chain = chain_of(8, every=8)
    chain.records[3], chain.records[4] = chain.records[4], chain.records[3]
    report = check(chain)
    found = [(fault.kind, fault.index) for fault in report.faults]
    assert ("entry", 4) in found
    assert ("checkpoint", 8) in found
    assert not any(fault.kind in ("inserted", "removed") for fault in report.faults)


# ---------------------------------------------------------------------- checkpoints


def test_a_forged_checkpoint_is_named_and_the_next_proves_the_same() -> None:
    chain = chain_of(12, every=4)
    line = chain.lines[1].replace(b'"messages":8', b'"messages":9')
    chain.lines[1] = line
    report = check(chain)
    texts = [fault.text for fault in report.faults]
    assert [fault.kind for fault in report.faults] == ["checkpoint", "checkpoint"]
    assert "checkpoint 2" in texts[0]
    assert "forged: the signature does not match its key" in texts[0]
    assert "checkpoint 3" in texts[1]
    assert "does not follow the one before" in texts[1]
    assert report.proved_sequence == 12


@pytest.mark.parametrize("number", [0, 1])
def test_a_checkpoint_that_was_taken_out_is_named(number: int) -> None:
    chain = chain_of(12, every=4)
    del chain.lines[number]
    report = check(chain)
    assert [fault.kind for fault in report.faults] == ["checkpoint"]
    assert f"checkpoint {number + 1} " in report.faults[0].text
    assert "does not follow the one before" in report.faults[0].text


def test_a_checkpoint_of_another_key_does_not_count_if_a_key_is_given() -> None:
    chain = chain_of(8, every=4)
    chain.key = OTHER_KEY
    chain.add(stored(9))
    chain.checkpoint()
    assert check(chain).signers == [KEY.public, OTHER_KEY.public]
    report = check(chain, keys=[KEY.public])
    assert [fault.kind for fault in report.faults] == ["checkpoint"]
    assert f"signed by another key, {OTHER_KEY.public}" in report.faults[0].text
    assert report.proved_sequence == 8


def test_a_chain_that_somebody_made_anew_does_not_contain_a_checkpoint_kept_elsewhere() -> None:
    """All files are consistent and signed, even with the right key; only the kept one tells."""
    chain = chain_of(12, every=4)
    kept = SignedHead("the kept one", chain.lines[1])
    forged = ReferenceChain()
    for sequence in range(1, 13):
        forged.add(stored(sequence, **({"payload": b"forged"} if sequence == 7 else {})))
    forged.checkpoint()
    assert check(forged).is_intact
    report = check(forged, kept=[kept])
    assert [fault.kind for fault in report.faults] == ["checkpoint"]
    assert "the kept one (of 8 entries) does not match the chain" in report.faults[0].text
    assert check(chain, kept=[kept]).is_intact


def test_a_chain_that_was_cut_is_shorter_than_a_checkpoint_kept_elsewhere() -> None:
    chain = chain_of(12, every=4)
    kept = SignedHead("the kept one", chain.lines[2])
    short = chain_of(9, every=4)
    assert check(short).is_intact
    report = check(short, kept=[kept])
    assert [fault.kind for fault in report.faults] == ["checkpoint"]
    assert "the kept one covers 12 entries, and the chain has 9" in report.faults[0].text


@pytest.mark.parametrize(
    "change", [{"stream": "OTHER"}, {"created": "2020-01-01T00:00:00Z"}, {"algorithm": "blake3"}]
)
def test_a_checkpoint_of_another_stream_is_named(change: dict[str, object]) -> None:
    chain = chain_of(4, every=0)
    chain.checkpoint(**change)
    report = check(chain)
    assert [fault.kind for fault in report.faults] == ["checkpoint"]
    assert "it is of stream" in report.faults[0].text


def test_a_checkpoint_that_goes_back_is_named() -> None:
    chain = chain_of(8, every=4)
    chain.checkpoint(size=3)
    report = check(chain)
    assert "covers 3 entries, the one before 8" in report.faults[0].text


def test_the_chain_of_another_stream_is_named() -> None:
    chain = chain_of(4)
    report = check(chain, before=bytes(32))
    assert ("entry", 0) in [(fault.kind, fault.index) for fault in report.faults]
    assert "does not begin as that of ORDERS" in report.faults[0].text
    assert report.proved_sequence == 0


# ---------------------------------------------------------------------- copies and running streams


def test_a_copy_may_begin_later_end_earlier_and_keep_more() -> None:
    chain = chain_of(12, every=4)
    chain.remove((5, 5))
    chain.checkpoint()
    copy = {number: stored(number) for number in range(3, 10)}
    report = check(chain, copy, is_copy=True)
    assert report.is_intact
    assert (report.not_copied, report.kept) == (5, 1)
    del copy[7]
    copy[4] = stored(4, payload=b"forged")
    report = check(chain, copy, is_copy=True)
    assert kinds(report) == [("removed", 7, 7), ("changed", 4, 4)]


def test_an_empty_copy_has_nothing_wrong_and_nothing_proved_about_messages() -> None:
    report = check(chain_of(4), {}, is_copy=True)
    assert report.is_intact
    assert (report.messages, report.not_copied) == (0, 4)


def test_what_was_removed_while_it_was_read_is_not_missing() -> None:
    chain = chain_of(8, every=4)
    verifier = ChainVerifier(chain.stream, chain.created, chain.algorithm)
    for record in chain.records:
        gone = record.sequence in (3, 5)
        changed = {"payload": b"erased"} if record.sequence == 6 else {}
        verifier.entry(record, None if gone else chained(stored(record.sequence, **changed)))
    chain.remove((3, 3), (5, 6))
    verifier.late(chain.records[-1])
    verifier.finish()
    assert verifier.conclude().is_intact


def test_a_removal_of_all_sequences_costs_nothing() -> None:
    chain = chain_of(4, every=0)
    chain._other(REMOVAL, ((1, chain_entries.SEQUENCE_MAX),), chain_entries.PURGED)
    chain.live.clear()
    chain.add(stored(5))
    chain.checkpoint()
    report = check(chain)
    assert report.is_intact
    assert report.removed == {"purged": 4}


def test_many_faults_are_counted_and_the_first_thousand_listed() -> None:
    chain = chain_of(2500, every=0)
    chain.checkpoint()
    forged = {number: stored(number, payload=b"forged") for number in chain.live}
    report = check(chain, forged, batch=500)
    assert report.fault_count == 2500
    assert len(report.faults) == 1000
    assert report.proved_sequence == 0


# ---------------------------------------------------------------------- the folder


def stored_in(chain: ReferenceChain) -> Iterable[ChainedMessage]:
    return (chained(chain.live[sequence]) for sequence in sorted(chain.live))


def verify(chain: ReferenceChain, path: Path, **options: object) -> ChainReport:
    what = (ChainFolder(path), chain.stream, chain.created, stored_in(chain))
    return verify_folder(*what, **options)  # type: ignore[arg-type]


def test_a_folder_is_verified_in_batches_with_its_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offline, "BATCH", 3)
    chain = chain_of(20, every=5)
    done: list[int] = []
    report = verify(chain, chain.write(tmp_path / "chain", 7), on_progress=done.append)
    assert report.is_intact
    assert (report.checkpoints, report.proved_sequence) == (4, 20)
    assert done == sorted(done)
    assert done[-1] == 20


def cut_links(path: Path) -> None:
    last = sorted(path.glob("*.links"))[-1]
    last.write_bytes(last.read_bytes()[:-1])


def cut_checkpoints(path: Path) -> None:
    file = path / chain_folder.CHECKPOINTS
    file.write_bytes(file.read_bytes()[:-5])


def damage_links(path: Path) -> None:
    first = path / chain_folder.segment_name(0)
    data = bytearray(first.read_bytes())
    data[chain_folder.HEADER_BYTES + 41 * 2] = 9
    first.write_bytes(data)


def damage_checkpoints(path: Path) -> None:
    file = path / chain_folder.CHECKPOINTS
    file.write_bytes(b"{}\n" + file.read_bytes())


@pytest.mark.parametrize(
    ("damage", "found", "noted"),
    [
        (cut_links, ["checkpoint"], "ends within a record"),
        (cut_checkpoints, [], "the last line has no end"),
        (damage_links, ["checkpoint", "file"], ""),
        (damage_checkpoints, ["checkpoint", "checkpoint"], ""),
    ],
)
def test_damaged_files_are_named(
    tmp_path: Path, damage: Callable[[Path], None], found: list[str], noted: str
) -> None:
    chain = chain_of(20, every=5)
    path = chain.write(tmp_path / "chain", 7)
    damage(path)
    report = verify(chain, path)
    assert sorted(fault.kind for fault in report.faults) == found
    assert any(noted in note for note in report.notes) == bool(noted)
    assert all(str(path) in text for text in report.notes)


def test_a_kept_checkpoint_is_read_from_its_file(tmp_path: Path) -> None:
    chain = chain_of(8)
    (tmp_path / "kept").write_bytes(chain.lines[0] + b"\n")
    head = offline.read_signed_head(tmp_path / "kept")
    assert check(chain, kept=[head]).checkpoints == 3
    with pytest.raises(Exception, match="No such file"):
        offline.read_signed_head(tmp_path / "none")


def test_the_report_becomes_json() -> None:
    chain = chain_of(8)
    report = check(chain, {})
    document = msgspec.json.decode(msgspec.json.encode(report))
    assert document["faults"] == [
        {
            "kind": "removed",
            "text": "sequences 1 to 8: missing, and the chain does not say why",
            "sequence": 1,
            "last_sequence": 8,
        }
    ]


@FEW
@given(st.binary(max_size=400))
def test_any_bytes_as_links_end_in_a_report(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    folder = tmp_path_factory.mktemp("chain")
    chain = ReferenceChain()
    chain.write(folder)
    path = folder / chain_folder.segment_name(0)
    path.write_bytes(path.read_bytes() + data)
    report = verify(chain, folder)
    assert report.size <= len(data) // 37
