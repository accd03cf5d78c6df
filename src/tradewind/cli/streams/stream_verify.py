"""`tradewind stream verify`, `checkpoint` and `prove`: the integrity of streams with a hash chain.

Owns the flags and the output. `tradewind.chain` verifies and defines the faults; `chain_places`
reads messages without a server.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tradewind.cli.frame.account_catalog import open_catalog
from tradewind.cli.frame.completion import complete_stream
from tradewind.cli.frame.failures import EXIT_FAILED, EXIT_USAGE, CommandError
from tradewind.cli.frame.frame import Argument, CommandApp, JsonFlag, Option, with_flags
from tradewind.cli.frame.output import Columns, line, note, print_json, styled
from tradewind.cli.frame.progress_bar import ProgressBar
from tradewind.cli.frame.settings import current, jetstream
from tradewind.cli.frame.text_formats import counted, time_text

if TYPE_CHECKING:
    from tradewind.api.chain import ChainInfo
    from tradewind.chain.chain_entries import ChainRecord
    from tradewind.chain.checkpoints import Checkpoint
    from tradewind.chain.report import ChainReport
    from tradewind.chain.signed_heads import SignedHead
    from tradewind.chain.verifier import ChainedMessage
    from tradewind.cli.streams.chain_places import StoredStream
    from tradewind.sync import JetStream

app = CommandApp("Verify streams with a hash chain")

StreamName = Annotated[str, Argument(metavar="STREAM", autocompletion=complete_stream)]
KeyOption = Annotated[
    list[str] | None,
    Option("--key", metavar="PUBLIC", help="Trust only this signer; may be repeated"),
]
DEFAULT_ACCOUNT = "$G"
FAULTS_SHOWN = 50


@dataclass(frozen=True)
class VerifyFlags:
    """The flags of `verify`."""

    store: Annotated[
        Path | None,
        Option("--store", metavar="DIR", help="Verify the store folder of a stopped server"),
    ] = None
    account: Annotated[
        str, Option("--account", metavar="NAME", help="With --store: the account")
    ] = DEFAULT_ACCOUNT
    config: Annotated[
        Path | None,
        Option("--config", metavar="FILE", help="With --store: server configuration with its key"),
    ] = None
    backup: Annotated[Path | None, Option("--backup", metavar="DIR", help="Verify a backup")] = None
    against: Annotated[
        str,
        Option("--against", metavar="URL|CONTEXT", help="Compare with the chain on this server"),
    ] = ""
    origin: Annotated[
        str, Option("--stream", metavar="NAME", help="With --against: the stream there")
    ] = ""
    checkpoint: Annotated[
        list[Path] | None,
        Option(
            "--checkpoint", metavar="FILE", help="Saved checkpoint that must match; may be repeated"
        ),
    ] = None
    key: KeyOption = None
    last: Annotated[int, Option("--last", min=0, help="Verify only the last N entries")] = 0
    progress: Annotated[bool, Option("--progress/--no-progress", help="Show a progress bar")] = True
    json: JsonFlag = False


@app.command("verify")
@with_flags(VerifyFlags)
def verify_stream(stream: StreamName = "", *, flags: VerifyFlags) -> int:
    """Prove that no messages were changed, removed or added."""
    if flags.store is not None and flags.backup is not None:
        raise CommandError("use --store or --backup, not both", exit_code=EXIT_USAGE)
    if flags.origin and not flags.against:
        raise CommandError("--stream requires --against", exit_code=EXIT_USAGE)
    is_offline = flags.store is not None or flags.backup is not None
    if flags.last and is_offline:
        raise CommandError("--last: only for a running stream", exit_code=EXIT_USAGE)
    check_keys(flags.key or [])
    report = _verify_offline(stream, flags) if is_offline else _verify_online(stream, flags)
    if flags.json:
        print_json(_document(report))
    else:
        copy = str(flags.store or flags.backup or f"Stream {stream}") if flags.against else ""
        show_report(report, copy)
    return 0 if report.is_intact else EXIT_FAILED


def check_keys(keys: list[str]) -> None:
    """CommandError unless all are public keys."""
    from tradewind.nkeys import NkeyError, decode_public

    for key in keys:
        try:
            decode_public(key)
        except NkeyError as error:
            raise CommandError(f"--key: {error}", exit_code=EXIT_USAGE) from None


def _kept(flags: VerifyFlags) -> list[SignedHead]:
    from tradewind.chain.offline import read_signed_head

    return [read_signed_head(path) for path in flags.checkpoint or []]


def _verify_online(stream: str, flags: VerifyFlags) -> ChainReport:
    kept = _kept(flags)
    with ExitStack() as stack:
        catalog = stack.enter_context(open_catalog())
        stream = catalog.stream(stream).config.name
        bar = stack.enter_context(
            ProgressBar(f"Verifying {stream}", None, unit="entries", shown=flags.progress)
        )
        options: dict[str, Any] = {
            "checkpoints": kept,
            "keys": flags.key or [],
            "last": flags.last,
            "on_progress": bar.set,
        }
        if flags.against:
            import asyncio

            return asyncio.run(_verify_copy(stream, flags, options))
        return jetstream(catalog.connection).chains.verify(stream, **options)


async def _verify_copy(stream: str, flags: VerifyFlags, options: dict[str, Any]) -> ChainReport:
    """Two servers at once need one loop for both."""
    from tradewind import connect

    settings = current()
    async with (
        await connect(
            settings.text("server") or None,
            context=settings.context,
            **settings.connect_settings(),
        ) as connection,
        await connect(**_place(flags.against)) as other,
    ):
        return await connection.jetstream().chains.verify(
            stream, origin=other.jetstream(), origin_stream=flags.origin, **options
        )


def _place(place: str) -> dict[str, Any]:
    """A URL or the name of a context, as `connect` takes it."""
    which = {"servers": place} if ":" in place else {"context": place}
    return {**which, "timeout": current().timeout}


def _verify_offline(stream: str, flags: VerifyFlags) -> ChainReport:
    from tradewind.chain.offline import verify_folder
    from tradewind.cli.streams.chain_places import open_backup, open_stored
    from tradewind.sync import connect

    kept = _kept(flags)
    with ExitStack() as stack:
        if flags.store is not None:
            if not stream:
                raise CommandError("specify the name of the stream", exit_code=EXIT_USAGE)
            place = stack.enter_context(
                open_stored(flags.store, flags.account, stream, flags.config)
            )
        else:
            assert flags.backup is not None
            place = stack.enter_context(open_backup(flags.backup, stream))
        bar = stack.enter_context(
            ProgressBar(
                f"Verifying {place.name}",
                place.entry_estimate,
                unit="entries",
                shown=flags.progress,
            )
        )
        options: dict[str, Any] = {"kept": kept, "keys": flags.key or [], "on_progress": bar.set}
        if flags.against:
            js = stack.enter_context(connect(**_place(flags.against))).jetstream()
            chain = RemoteChain(js, flags.origin or place.name)
            return verify_folder(
                chain,
                chain.stream,
                chain.created,
                place.messages,
                has_all_checkpoints=False,
                is_copy=True,
                second_copy=chain.message,
                **options,
            )
        if flags.backup is not None:
            return _verify_backup(place, options)
        return verify_folder(place.chain(), place.name, place.created, place.messages, **options)


def _verify_backup(place: StoredStream, options: dict[str, Any]) -> ChainReport:
    """The checkpoint was made before the backup, so all that it covers must be there."""
    from tradewind.chain.offline import verify_folder

    chain = place.chain()
    head = next((found for _, found in chain.checkpoints()), None)
    created = "" if head is None else head.created
    return verify_folder(
        chain,
        place.name,
        created,
        place.messages,
        has_all_checkpoints=False,
        is_copy=True,
        complete_to=0 if head is None else head.last_seq,
        **options,
    )


class RemoteChain:
    """The chain of a running stream as `verify_folder` reads one."""

    before = None

    def __init__(self, js: JetStream, stream: str) -> None:
        self._js = js
        self.stream = stream
        self.path = Path(stream)
        self._info: ChainInfo = js.chains.info(stream)
        self.created = js.manager.streams.info(stream).created or ""

    @property
    def algorithm(self) -> str:
        """The hash."""
        return self._info.algorithm

    def records(self) -> Iterator[tuple[int, ChainRecord]]:
        """All entries that there were when this was made."""
        from tradewind.chain.chain_entries import read_records

        index = 0
        while index < self._info.size:
            page = self._js.chains.entries(self.stream, index)
            records, _ = read_records(page.records, count=self._info.size - index)
            if page.first_index != index or not records:
                raise CommandError(f"the server sends no entries from {index} on")
            for record in records:
                yield index, record
                index += 1

    def checkpoint_lines(self) -> Iterator[tuple[int, bytes]]:
        """The last checkpoint."""
        from tradewind.chain.checkpoints import encode

        if self._info.checkpoint is not None:
            yield 0, encode(self._info.checkpoint)

    def message(self, sequence: int) -> ChainedMessage | None:
        """The original of a message, if it is still there."""
        return self._js.chains.message(self.stream, sequence)


# ---------------------------------------------------------------------- output


def _document(report: ChainReport) -> dict[str, Any]:
    import msgspec

    return {"is_intact": report.is_intact, **msgspec.to_builtins(report)}


def show_report(report: ChainReport, copy: str = "") -> None:
    """Print the findings, then the verdict; `copy` names what was compared with the chain."""
    of = f"{copy}, compared with Stream {report.stream}" if copy else f"Stream {report.stream}"
    columns = Columns(f"Integrity of {of}")
    columns.row_if("Created", report.created)
    columns.row("Algorithm", report.algorithm)
    columns.row("Entries", report.size)
    columns.row("Messages verified", report.messages)
    for reason, count in sorted(report.removed.items()):
        columns.row_if(f"Removed: {reason}", count)
    columns.row_if("Not in the copy", report.not_copied)
    columns.row_if("Only in the copy", report.kept)
    columns.row_if("Not yet in the chain", report.uncovered)
    columns.row("Matching checkpoints", report.checkpoints)
    columns.row_if("Signed by", report.signers)
    columns.print()
    for fault in report.faults[:FAULTS_SHOWN]:
        line(f"{styled(fault.kind, 'red')}: {fault.text}")
    if report.fault_count > FAULTS_SHOWN:
        line(f"... and {report.fault_count - FAULTS_SHOWN} more; --json lists up to 1000")
    for text in report.notes:
        note(f"note: {text}")
    proved = f"proved up to sequence {report.proved_sequence}"
    if report.is_intact:
        linked = report.last_sequence - report.proved_sequence
        more = f"; the rest, up to {report.last_sequence}, is linked but not signed yet"
        line(f"{styled('Intact', 'green')}: {proved}{more if linked else ''}")
    else:
        what = counted(report.fault_count, "fault")
        line(f"{styled('Not intact', 'red')}: {what}, {proved}")


def show_checkpoint(head: Checkpoint) -> None:
    """A checkpoint in rows."""
    columns = Columns(f"Checkpoint of Stream {head.stream}")
    columns.row("Created", head.created)
    columns.row("Algorithm", head.algorithm)
    columns.row("Entries", head.size)
    columns.row("Messages", head.messages)
    columns.row("Sequences", f"{head.first_seq} to {head.last_seq}")
    columns.row("Time", time_text(head.time))
    columns.row("Link", head.link)
    columns.row("Root", head.root)
    columns.row("Key", head.key)
    columns.print()


# ---------------------------------------------------------------------- checkpoint


@app.command("checkpoint")
def make_checkpoint(
    stream: StreamName = "",
    out: Annotated[
        Path | None,
        Option(
            "--out",
            metavar="FILE",
            help="Save it to this file; a checkpoint already there must match and is replaced",
        ),
    ] = None,
    key: KeyOption = None,
    json: JsonFlag = False,
) -> None:
    """Sign the head of a stream's chain, and keep it elsewhere."""
    from tradewind.chain import checkpoints

    check_keys(key or [])
    with open_catalog() as catalog:
        stream = catalog.stream(stream).config.name
        js = jetstream(catalog.connection)
        head = js.chains.checkpoint(stream)
        if not checkpoints.is_signed(head):
            raise CommandError("the server's checkpoint is not signed by the key that it names")
        if key and head.key not in key:
            raise CommandError(f"the server signs with another key, {head.key}")
        if out is not None:
            if out.exists():
                _check_continues(js, stream, out, head)
            _save(out, checkpoints.encode(head) + b"\n")
    if json:
        line(checkpoints.encode(head).decode())
        return
    show_checkpoint(head)
    if out is not None:
        line(f"Saved in {out}; verify with: tradewind stream verify {stream} --checkpoint {out}")


def _check_continues(js: JetStream, stream: str, path: Path, head: Checkpoint) -> None:
    """CommandError unless the chain continues the one of the checkpoint in a file."""
    from tradewind.chain import checkpoints, merkle
    from tradewind.chain.chain_entries import digest_of
    from tradewind.chain.offline import read_signed_head
    from tradewind.chain.proofs import hash_of

    old = checkpoints.decode(read_signed_head(path).line)
    stays = f"{path} is left unchanged"
    if not checkpoints.is_signed(old):
        raise CommandError(f"{path}: the signature does not match the key", stays)
    if (old.stream, old.created, old.algorithm) != (head.stream, head.created, head.algorithm):
        raise CommandError(
            f"{path}: it belongs to stream {old.stream} created {old.created}", stays
        )
    if old.size > head.size:
        raise CommandError(
            f"the chain was cut: it has {head.size} entries, and had {old.size} at {old.time}",
            stays,
        )
    path_nodes: list[bytes] = []
    if old.size < head.size:
        proof = js.chains.consistency_proof(stream, old.size, head.size)
        path_nodes = [hash_of(node, "path") for node in proof.path]
    roots = hash_of(old.root, "root"), hash_of(head.root, "root")
    digest = digest_of(head.algorithm)
    if not merkle.is_consistent(digest, old.size, head.size, *roots, path_nodes):
        raise CommandError(
            f"the chain does not continue the checkpoint of {old.time}: it was rewritten", stays
        )


def _save(path: Path, data: bytes) -> None:
    from tradewind.private_files import replace_private

    try:
        replace_private(path, data)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None


# ---------------------------------------------------------------------- prove


@app.command("prove")
def prove_message(
    stream: StreamName = "",
    seq: Annotated[int, Argument(metavar="SEQ", min=0, help="Sequence of the message")] = 0,
    out: Annotated[Path | None, Option("--out", metavar="FILE", help="Save the proof")] = None,
    check: Annotated[
        Path | None, Option("--check", metavar="FILE", help="Check a proof; needs no server")
    ] = None,
    key: KeyOption = None,
) -> None:
    """Prove that one message is in a stream, as a file that anybody can check."""
    from tradewind.chain.proofs import check_proof, decode_proof
    from tradewind.cli.frame.output import json_text

    check_keys(key or [])
    if check is not None:
        proof = decode_proof(_read(check))
        check_proof(proof, key or [])
        head = proof.checkpoint
        line(
            f"{styled('Proved', 'green')}: message {proof.sequence} ({proof.subject}) is entry "
            f"{proof.index} of Stream {head.stream}"
        )
        line(f"Signed by {head.key} at {time_text(head.time)}")
        return
    if not seq:
        raise CommandError("specify STREAM and SEQ, or --check FILE", exit_code=EXIT_USAGE)
    with open_catalog() as catalog:
        stream = catalog.stream(stream).config.name
        proof = jetstream(catalog.connection).chains.prove(stream, seq)
    check_proof(proof, key or [])
    text = json_text(proof)
    if out is None:
        line(text)
        return
    _save(out, text.encode() + b"\n")
    line(f"Saved in {out}; check with: tradewind stream prove --check {out}")


def _read(path: Path) -> bytes:
    most = 1 << 28
    try:
        if path.stat().st_size > most:
            raise CommandError(f"{path}: a proof has {most} bytes or less")
        return path.read_bytes()
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None
