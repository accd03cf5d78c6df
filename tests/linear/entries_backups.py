"""Entry points of backups: messages, sets of sequences, and the files of a place."""

from __future__ import annotations

from array import array

from entries_wire import JSON_ATOMS
from entry_points import EntryPoint, register

from tradewind.backups.backup_documents import decode_backup
from tradewind.backups.backup_errors import BackupError, DamagedMessagesError
from tradewind.backups.message_entries import EntrySelection, scan_entries
from tradewind.backups.message_ranges import TIME_NS_MAX, TIME_NS_MIN
from tradewind.backups.sequence_ranges import SequenceRanges
from tradewind.store.backup.archive import append_entry

MESSAGES_BYTES = 4 << 20
SUBJECT_BYTES = 65535
REMOVED_BYTES = 256 << 10
BACKUP_BYTES = 1 << 20


def entries(*subjects: bytes) -> bytes:
    target = bytearray()
    for seq, subject in enumerate(subjects, 1):
        append_entry(target, subject, 1, seq, b"", b"x")
    return bytes(target)


def choose(subject: bytes) -> None:
    patterns = (b"a.*.>", b"*.*.*.*.x", b">.a", b"a.b.c")
    data = entries(subject)
    EntrySelection(array("Q"), patterns, TIME_NS_MIN, TIME_NS_MAX, b"a.", b"b.").select(data)


register(
    EntryPoint(
        "messages of a backup",
        ("backups.message_entries",),
        MESSAGES_BYTES,
        lambda data: scan_entries(data, 0, MESSAGES_BYTES, 0),
        (entries(b"a"), b"\x00", b"\xff", b"\x80\x01", b"\x01a"),
        (entries(b"a", b"b.c"),),
        refusals=(DamagedMessagesError,),
    )
)
register(
    EntryPoint(
        "subjects of a restore",
        ("backups.message_entries",),
        SUBJECT_BYTES,
        choose,
        (b"a", b".", b"a.", b"*", b">", b"a.b."),
        (b"a.b.c",),
        refusals=(DamagedMessagesError,),
    )
)
register(
    EntryPoint(
        "removed sequences of a backup",
        ("backups.sequence_ranges",),
        REMOVED_BYTES,
        SequenceRanges.unpacked,
        (b"\x02\x00", b"\x00", b"\xff", b"\x80\x01", b"\x7f"),
        (SequenceRanges.of_sequences([1, 2, 5]).packed(),),
        refusals=(ValueError,),
    )
)
register(
    EntryPoint(
        "file of a backup",
        ("backups.backup_documents",),
        BACKUP_BYTES,
        lambda data: decode_backup(data, "file"),
        JSON_ATOMS,
        (),
        ((b"", b""), (b'{"digest":"x","backup":', b"}")),
        refusals=(BackupError,),
    )
)
