"""`tradewind stream verify` on store folders: intact ones, and every way to tamper with one."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chain_kit import KEY, OTHER_KEY, ReferenceChain, Stored, stored
from chain_store_kit import rewrite_block, stored_chain, write_store
from cli_outcome import Cli, Outcome
from tradewind.chain import chain_folder
from tradewind.chain.offline import verify_folder
from tradewind.cli.streams.chain_places import open_stored
from tradewind.options import EncryptionOptions, Secret
from tradewind.store.files.vault import MainKeyRing

COUNT = 30


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pristine") / "store"
    write_store(path, stored_chain(COUNT))
    return path


@pytest.fixture
def store(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "store"))


def stream_of(store: Path) -> Path:
    return store / "jetstream/$G/streams/ORDERS"


def photograph(path: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(file): (file.stat().st_mtime_ns, file.read_bytes() if file.is_file() else b"")
        for file in sorted(path.rglob("*"))
    }


def verify(offline: Cli, store: Path, *more: str) -> Outcome:
    """Nothing may be changed by it."""
    before = photograph(store)
    outcome = offline("stream", "verify", "ORDERS", "--store", str(store), *more)
    assert photograph(store) == before
    return outcome


def test_an_intact_store_is_proved(offline: Cli, store: Path) -> None:
    outcome = verify(offline, store).ok()
    assert "Intact: proved up to sequence 30\n" in outcome.out
    assert "Removed: deleted: 3" in outcome.out
    document = verify(offline, store, "--json").ok().json
    assert document["is_intact"]
    assert (document["messages"], document["size"], document["checkpoints"]) == (27, 33, 6)
    assert document["signers"] == [KEY.public]


def forged(message: Stored) -> Stored:
    return replace(message, payload=b"forged")


tampers = st.sampled_from(["change", "remove", "insert", "exchange", "return", "restore"])


@settings(max_examples=40)
@given(kind=tampers, data=st.data())
def test_rewritten_blocks_with_valid_checksums_are_named(
    pristine: Path,
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    data: st.DataObject,
) -> None:
    """What was done is what is said, and nothing else is."""
    chain = stored_chain(COUNT)
    messages = dict(chain.live)
    live = sorted(messages)
    one = data.draw(st.sampled_from(live))
    expected = {("changed", one)}
    if kind == "change":
        part = data.draw(st.sampled_from(["time_ns", "subject", "header", "payload"]))
        other = {"time_ns": 7, "subject": b"orders.x", "header": b"NATS/1.0\r\nA: b\r\n\r\n"}
        messages[one] = replace(messages[one], **{part: other.get(part, b"forged")})
    elif kind == "remove":
        del messages[one]
        expected = {("removed", one)}
    elif kind == "insert":
        # Sequence 9 was removed by an entry: another message in its place.
        messages[9] = forged(stored(9))
        expected = {("changed", 9), ("returned", 9)}
    elif kind == "return":
        messages[19] = chain.gone[19]
        expected = {("returned", 19)}
    elif kind == "exchange":
        two = data.draw(st.sampled_from([number for number in live if number != one]))
        messages[one], messages[two] = (
            replace(messages[two], sequence=one),
            replace(messages[one], sequence=two),
        )
        expected = {("reordered", one), ("reordered", two)}
    else:
        expected = set()
    store = Path(shutil.copytree(pristine, tmp_path_factory.mktemp("tampered") / "store"))
    rewrite_block(stream_of(store), "ORDERS", messages.values())
    with open_stored(store, "$G", "ORDERS", None) as place:
        report = verify_folder(place.chain(), place.name, place.created, place.messages)
    assert {(fault.kind, fault.sequence) for fault in report.faults} == expected
    first = min((sequence for _, sequence in expected), default=COUNT + 1)
    assert report.proved_sequence == min(first - 1, COUNT)


def test_a_message_that_was_never_chained_is_named(offline: Cli, tmp_path: Path) -> None:
    chain = ReferenceChain(created=stored_chain(1).created)
    for sequence in (1, 2, 5, 6):
        chain.add(stored(sequence))
    chain.checkpoint()
    folder = write_store(tmp_path / "store", chain)
    rewrite_block(folder, "ORDERS", [*chain.live.values(), stored(3)])
    outcome = offline("stream", "verify", "ORDERS", "--store", str(tmp_path / "store"))
    assert outcome.code == 1
    assert "inserted: sequence 3: stored, and not in the chain\n" in outcome.out
    assert "Not intact: 1 fault, proved up to sequence 2\n" in outcome.out


def test_messages_cut_off_at_the_end_are_named(offline: Cli, store: Path) -> None:
    chain = stored_chain(COUNT)
    kept = [message for number, message in chain.live.items() if number <= 26]
    rewrite_block(stream_of(store), "ORDERS", kept)
    outcome = verify(offline, store)
    assert outcome.code == 1
    assert "removed: sequences 27 to 28: missing, and the chain does not say why" in outcome.out
    assert "removed: sequence 30: missing" in outcome.out


def test_a_changed_link_is_named_with_the_checkpoint_that_does_not_fit(
    offline: Cli, store: Path
) -> None:
    path = stream_of(store) / "chain" / chain_folder.segment_name(0)
    data = bytearray(path.read_bytes())
    data[chain_folder.HEADER_BYTES + 41 * 6 + 20] ^= 1  # of entry 6, sequence 7
    path.write_bytes(data)
    outcome = verify(offline, store)
    assert outcome.code == 1
    assert "entry: entry 6, a message (sequence 7): its link was changed\n" in outcome.out
    assert "checkpoint 2 (" in outcome.out
    assert "does not match the chain, nor do 4 after it" in outcome.out
    assert "proved up to sequence 5\n" in outcome.out


def test_a_forged_checkpoint_is_named_with_its_line(offline: Cli, store: Path) -> None:
    path = stream_of(store) / "chain" / chain_folder.CHECKPOINTS
    lines = path.read_bytes().splitlines()
    lines[5] = lines[5].replace(b'"messages":27', b'"messages":28')
    path.write_bytes(b"\n".join(lines) + b"\n")
    outcome = verify(offline, store)
    assert outcome.code == 1
    assert f"checkpoint: checkpoint 6 ({path}, byte " in outcome.out
    assert "it is forged: the signature does not match its key" in outcome.out
    assert "proved up to sequence 25\n" in outcome.out


def test_only_the_given_key_counts(offline: Cli, store: Path) -> None:
    verify(offline, store, "--key", KEY.public).ok()
    outcome = verify(offline, store, "--key", OTHER_KEY.public)
    assert outcome.code == 1
    assert f"it was signed by another key, {KEY.public}" in outcome.out
    wrong = verify(offline, store, "--key", "UABC")
    assert wrong.code == 2
    assert "--key: a public nkey must have 56 characters" in wrong.err


def test_a_chain_rewritten_with_the_servers_own_key_does_not_fit_a_kept_checkpoint(
    offline: Cli, store: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    kept.write_bytes(stored_chain(COUNT).lines[3] + b"\n")
    verify(offline, store, "--checkpoint", str(kept)).ok()
    anew = ReferenceChain(created=stored_chain(1).created)
    for sequence in range(1, COUNT + 1):
        anew.add(forged(stored(sequence)) if sequence == 12 else stored(sequence))
    anew.checkpoint()
    shutil.rmtree(stream_of(store) / "chain")
    anew.write(stream_of(store) / "chain")
    rewrite_block(stream_of(store), "ORDERS", anew.live.values())
    verify(offline, store).ok()
    outcome = verify(offline, store, "--checkpoint", str(kept))
    assert outcome.code == 1
    assert f"checkpoint: the checkpoint in {kept} (of 22 entries) does not match" in outcome.out


def test_a_stream_without_a_chain_and_a_wrong_name_are_explained(offline: Cli, store: Path) -> None:
    wrong = offline("stream", "verify", "ORDER", "--store", str(store))
    assert wrong.code == 1
    assert "account $G has no stream 'ORDER'; did you mean 'ORDERS'?" in wrong.err
    nobody = offline("stream", "verify", "ORDERS", "--store", str(store), "--account", "A")
    assert "account A has no stream 'ORDERS'" in nobody.err
    shutil.rmtree(stream_of(store) / "chain")
    none = verify(offline, store)
    assert none.code == 1
    assert "chain: cannot read the folder of the chain: No such file" in none.err


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (["--store", "a", "--backup", "b"], "use --store or --backup, not both"),
        (["--stream", "A"], "--stream requires --against"),
        (["--store", "a", "--last", "5"], "--last: only for a running stream"),
        (["--store", "/nowhere"], "not a store"),
        (["--backup", "/nowhere"], "/nowhere/backup.json: not found"),
        (["--store", "/nowhere", "--checkpoint", "/none"], "/none: cannot read the checkpoint"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(
    offline: Cli, flags: list[str], error: str
) -> None:
    outcome = offline("stream", "verify", "ORDERS", *flags)
    assert outcome.code in (1, 2)
    assert error in outcome.err


def test_a_store_in_use_is_left_alone(offline: Cli, store: Path) -> None:
    import fcntl

    with (store / "jetstream/tradewind.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        outcome = offline("stream", "verify", "ORDERS", "--store", str(store))
    assert outcome.code == 1
    assert "is using the store; stop it first" in outcome.err


def test_an_encrypted_store_is_verified_with_the_configuration_of_its_server(
    offline: Cli, tmp_path: Path
) -> None:
    chain = stored_chain(12, every=4)
    write_store(tmp_path / "store", chain, MainKeyRing(EncryptionOptions(Secret("s3cret"))))
    config = tmp_path / "server.conf"
    config.write_text(f'jetstream {{ store_dir: "{tmp_path}/store", cipher: aes, key: "s3cret" }}')
    outcome = verify(offline, tmp_path / "store", "--config", str(config)).ok()
    assert "Intact: proved up to sequence 12" in outcome.out
    without = verify(offline, tmp_path / "store")
    assert without.code == 1
    assert "encrypted" in without.err


def test_a_checkpoint_in_another_form_is_named(offline: Cli, store: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_bytes(b"{}")
    outcome = verify(offline, store, "--checkpoint", str(kept))
    assert outcome.code == 1
    assert f"the checkpoint in {kept}: not a checkpoint" in outcome.out
