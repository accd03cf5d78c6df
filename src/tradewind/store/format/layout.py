"""Names, folders and constants of the store on disk.

Owns the folder layout, which names may become folders, the record layout, the rule for block sizes
and the texts from which hash keys are made. It never touches the disk: paths are plain strings
relative to the configured store folder, and callers pass them to `store.files.disk`. The formats of
the files are in the modules of this package that are named here.

    jetstream/
      <ACCOUNT>/                        "$G" is the default account
        streams/
          <STREAM>/
            meta.inf  meta.sum          configuration and its hash (meta)
            sources.db                  the position of each source (side_files)
            tradewind.acks.<N>          changes of consumers, Tradewind only (ack_log)
            msgs/
              <N>.blk                   records, N from 1 and rising, gaps allowed
              index.db                  optional summary of all blocks (index_file)
              thw.db                    expiry of messages with a TTL (timing_wheel)
              sched.db                  scheduled messages (side_files)
            obs/<CONSUMER>/
              meta.inf  meta.sum
              o.dat                     what was delivered and acknowledged (consumer_file)
            batches/<HASH>/             atomic batches in flight, each shaped like a stream
            __msgs__/  __new_msgs__/    exist only during a purge
          .<STREAM>/                    a stream whose deletion was interrupted
        __snapshots__/                  staging of a restore

A block is records one after the other, without header, footer or padding. One record:

    offset    bytes   field
    0         4 LE    length of the record, all of it; bit 31: it has a header block
    4         8 LE    sequence; bit 63: erased or skipped; bit 62: tombstone
    12        8 LE    time in ns since 1970, signed
    20        2 LE    subject length S
    22        S       subject
    22+S      4 LE    header length H, only with bit 31
    26+S      H       header block as on the wire, only with bit 31
    ...               payload
    length-8  8       hash of bytes 4..19, subject, header block and payload: no length is hashed

A compressed block is "cmp", one byte of algorithm, the plain size as uvarint, the compressed
stream of all but the last 8 plain bytes, and these 8 bytes as they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tradewind.errors import StoreError
from tradewind.subjects import is_literal

JETSTREAM_FOLDER: Final = "jetstream"
# Tradewind's files beside the streams of an account, see `transaction_log`.
JOURNAL_PREFIX: Final = "tradewind.commits."
JOURNAL_KEY_FILE: Final = f"{JOURNAL_PREFIX}key"
STREAMS_FOLDER: Final = "streams"
MESSAGES_FOLDER: Final = "msgs"
CONSUMERS_FOLDER: Final = "obs"
BATCHES_FOLDER: Final = "batches"
PURGED_MESSAGES_FOLDER: Final = "__msgs__"
NEW_MESSAGES_FOLDER: Final = "__new_msgs__"
# Ours, in the folder of an account.
TEMPLATES_FILE: Final = "tradewind.templates"
SNAPSHOTS_FOLDER: Final = "__snapshots__"

META_FILE: Final = "meta.inf"
META_SUM_FILE: Final = "meta.sum"
META_KEY_FILE: Final = "meta.key"
SOURCES_FILE: Final = "sources.db"
INDEX_FILE: Final = "index.db"
TIMERS_FILE: Final = "thw.db"
SCHEDULES_FILE: Final = "sched.db"
CONSUMER_FILE: Final = "o.dat"
BLOCK_SUFFIX: Final = ".blk"
KEY_SUFFIX: Final = ".key"
TEMPORARY_SUFFIX: Final = ".tmp"

# The number of a block, and an offset in it.
Position = tuple[int, int]

NAME_BYTES_MAX: Final = 255
BLOCK_NUMBER_MAX: Final = 0xFFFF_FFFF
# The digits of generated names.
DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

# The parts of a record.
LENGTH_BYTES: Final = 4
SEQUENCE_OFFSET: Final = 4
TIME_OFFSET: Final = 12
SUBJECT_LENGTH_OFFSET: Final = 20
SUBJECT_OFFSET: Final = 22
HEADER_LENGTH_BYTES: Final = 4
CHECKSUM_BYTES: Final = 8
RECORD_BYTES_MIN: Final = SUBJECT_OFFSET + CHECKSUM_BYTES
RECORD_BYTES_MAX: Final = 32 * 1024 * 1024
HAS_HEADER_BIT: Final = 1 << 31
ERASED_BIT: Final = 1 << 63
TOMBSTONE_BIT: Final = 1 << 62
SEQUENCE_MAX: Final = TOMBSTONE_BIT - 1
# The official server writes its zero time (year 1) as these nanoseconds, wrapped to 64 bits.
ZERO_TIME_NS: Final = -6795364578871345152

COMPRESSED_MAGIC: Final = b"cmp"
ALGORITHM_NONE: Final = 0
ALGORITHM_S2: Final = 1

BLOCK_BYTES_SMALL: Final = 32_000
BLOCK_BYTES_MEDIUM: Final = 4 * 1024 * 1024
BLOCK_BYTES_LARGE: Final = 8 * 1024 * 1024
# An encrypted block is read as a whole.
BLOCK_BYTES_ENCRYPTED: Final = 2_097_152
PAYLOAD_BYTES_DEFAULT: Final = 1024 * 1024
# The official server's guess for a stream whose subjects are all wildcards.
SUBJECT_BYTES_GUESS: Final = 256

_FORBIDDEN_IN_NAMES: Final = {
    " ": "a space",
    "\t": "a tab",
    "\r": "a carriage return",
    "\n": "a line feed",
    "\f": "a form feed",
    "\0": "a zero byte",
    ".": "'.'",
    "*": "'*'",
    ">": "'>'",
    "/": "a path separator",
    "\\": "a path separator",
}


def short_hash(text: str) -> str:
    """Eight digits that identify a text: an account, a batch, the time of a stream's creation."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
    return "".join(DIGITS[byte % len(DIGITS)] for byte in digest[:8])


def name_problem(name: str) -> str:
    """The reason why `name` cannot be a stream or consumer name, or "" if it can.

    The rule of the official server: other control characters and any letters are allowed.
    """
    if not name:
        return "is empty"
    for character in name:
        if character in _FORBIDDEN_IN_NAMES:
            return f"contains {_FORBIDDEN_IN_NAMES[character]}"
    return _size_problem(name)


def account_name_problem(name: str) -> str:
    """The reason why `name` cannot be an account's folder, or "": account names may contain
    dots.
    """
    if not name:
        return "is empty"
    if name in (".", "..") or "/" in name or "\0" in name:
        return "is not a name of a folder"
    return _size_problem(name)


def _size_problem(name: str) -> str:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "is not valid UTF-8"
    return (
        f"has {size} bytes, at most {NAME_BYTES_MAX} are allowed" if size > NAME_BYTES_MAX else ""
    )


def account_folder(account: str) -> str:
    """The folder of an account, relative to the store folder; StoreError if it cannot have one."""
    if problem := account_name_problem(account):
        raise StoreError(f"account name {account!r} {problem}")
    return f"{JETSTREAM_FOLDER}/{account}"


def stream_folder(account: str, stream: str) -> str:
    """The folder of a stream, relative to the store folder; StoreError if it cannot have one."""
    if problem := name_problem(stream):
        raise StoreError(f"stream name {stream!r} {problem}")
    return f"{account_folder(account)}/{STREAMS_FOLDER}/{stream}"


def block_file_name(number: int) -> str:
    """The file name of block `number`: decimal, no leading zeros."""
    if not 0 < number <= BLOCK_NUMBER_MAX:
        raise StoreError(f"block number must be 1 to {BLOCK_NUMBER_MAX}, not {number}")
    return f"{number}{BLOCK_SUFFIX}"


def block_number(file_name: str) -> int:
    """The number of the block in this file, 0 if the name is not one of a block.

    "7.blk.tmp", "07.blk" and "7.new" are not: each block has exactly one name.
    """
    digits = file_name.removesuffix(BLOCK_SUFFIX)
    if digits == file_name or not 1 <= len(digits) <= 10:
        return 0
    if not (digits.isascii() and digits.isdigit()) or digits[0] == "0":
        return 0
    number = int(digits)
    return number if number <= BLOCK_NUMBER_MAX else 0


def block_numbers(file_names: Iterable[str]) -> list[int]:
    """The numbers of all blocks among these file names, rising."""
    return sorted(number for name in file_names if (number := block_number(name)))


def block_key_file_name(number: int) -> str:
    """The file with the key of block `number`, if it is encrypted."""
    return f"{number}{KEY_SUFFIX}"


def block_key_number(file_name: str) -> int:
    """The number of the block whose key is in this file, 0 if the name is not one of a key."""
    stem = file_name.removesuffix(KEY_SUFFIX)
    return block_number(stem + BLOCK_SUFFIX) if stem != file_name else 0


def is_encrypted(file_names: Iterable[str]) -> bool:
    """Whether the files of one folder (a stream's, its msgs or a consumer's) are encrypted.

    Such a folder has a key file.
    """
    return any(name == META_KEY_FILE or block_key_number(name) for name in file_names)


def block_key_text(stream: str, number: int) -> str:
    """The text whose hash key covers the records of one block."""
    return f"{stream}-{number}"


def stream_key_text(stream: str) -> str:
    """The text whose hash key covers the stream's meta.inf and index.db."""
    return stream


def consumer_key_text(stream: str, consumer: str) -> str:
    """The text whose hash key covers the consumer's meta.inf."""
    return f"{stream}/{consumer}"


def record_bytes(subject_bytes: int, header_bytes: int, payload_bytes: int) -> int:
    """The length of a record; also what the message counts for in the stream's size."""
    header = HEADER_LENGTH_BYTES + header_bytes if header_bytes else 0
    return RECORD_BYTES_MIN + subject_bytes + header + payload_bytes


def block_bytes_max(config: Mapping[str, Any], max_payload_bytes: int = 0) -> int:
    """The size at which a block of a stream with this configuration is full.

    Small streams get small blocks, because space is only given back block by block. Readers need
    not know it, and any other size is as good for the official server.
    """
    estimate = _size_estimate(config, max_payload_bytes)
    if estimate > 0:
        quarter = (estimate // 4 + 1 + 99) // 100 * 100
        if quarter <= BLOCK_BYTES_SMALL:
            return BLOCK_BYTES_SMALL
        return BLOCK_BYTES_LARGE if quarter >= BLOCK_BYTES_LARGE else BLOCK_BYTES_MEDIUM
    if _limit(config, "max_msgs_per_subject") > 0:
        return BLOCK_BYTES_MEDIUM
    is_limits = config.get("retention", "limits") == "limits"
    return BLOCK_BYTES_LARGE if is_limits else BLOCK_BYTES_MEDIUM


def _size_estimate(config: Mapping[str, Any], max_payload_bytes: int) -> int:
    """How large the stream can become in bytes, 0 when nothing limits it."""
    if (max_bytes := _limit(config, "max_bytes")) > 0:
        return max_bytes
    if (max_messages := _limit(config, "max_msgs")) <= 0:
        return 0
    payload = _limit(config, "max_msg_size")
    if payload <= 0:
        payload = max_payload_bytes if max_payload_bytes > 0 else PAYLOAD_BYTES_DEFAULT
    literals = [
        len(subject.encode()) for subject in config.get("subjects") or () if is_literal(subject)
    ]
    subject = max(literals, default=SUBJECT_BYTES_GUESS)
    return max_messages * (RECORD_BYTES_MIN + subject + HEADER_LENGTH_BYTES + payload)


def _limit(config: Mapping[str, Any], field: str) -> int:
    return int(config.get(field) or 0)
