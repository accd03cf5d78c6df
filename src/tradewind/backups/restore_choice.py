"""The choice of what is restored from a backup, and under which names.

Owns the choice: streams, new names, subjects and times. A bucket that gets a new name gets the
subjects of that name too; any other stream that gets one is a copy beside the original, so it does
not take over the subjects, mirror or sources of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec

from tradewind.api.names import KV_STREAM, KV_SUBJECTS, OBJECT_STREAM, OBJECT_SUBJECTS
from tradewind.backups.backup_documents import SavedConsumer
from tradewind.backups.backup_errors import BackupError
from tradewind.backups.message_ranges import TIME_NS_MAX, TIME_NS_MIN
from tradewind.store.format.layout import name_problem
from tradewind.subjects import is_valid_subject

_BUCKETS: Final = ((KV_STREAM, KV_SUBJECTS), (OBJECT_STREAM, OBJECT_SUBJECTS))
# A message leads to no more comparisons than this.
SUBJECTS_MAX: Final = 100


class RestoreChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A choice: streams by name or pattern with `*` (all without any), `renames` from old
    to new names, only messages of `subjects`, from `since_ns` until before `until_ns`.
    """

    streams: tuple[str, ...] = ()
    renames: dict[str, str] = msgspec.field(default_factory=dict)
    subjects: tuple[str, ...] = ()
    since_ns: int = TIME_NS_MIN
    until_ns: int = TIME_NS_MAX
    skips_existing: bool = False
    has_consumers: bool = True
    has_templates: bool = True

    @property
    def takes_all(self) -> bool:
        """Whether all messages of a stream are taken."""
        return not self.subjects and self.since_ns == TIME_NS_MIN and self.until_ns == TIME_NS_MAX

    def check(self) -> None:
        """BackupError if a name or subject is not valid."""
        for subject in self.subjects:
            if not is_valid_subject(subject):
                raise BackupError(f"subject must be like orders.*.new or orders.>, not {subject!r}")
        if len(self.subjects) > SUBJECTS_MAX:
            raise BackupError(f"at most {SUBJECTS_MAX} subjects, not {len(self.subjects)}")
        for old, new in self.renames.items():
            if problem := name_problem(new):
                raise BackupError(f"{old}={new}: {new!r} cannot be the name of a stream: {problem}")
            if _bucket_prefix(old) != _bucket_prefix(new):
                raise BackupError(
                    f"{old}={new}: a bucket needs a name that begins like {old[:4]!r}, and no other"
                    " stream may have one"
                )
        if self.since_ns >= self.until_ns:
            raise BackupError("the time of since must be before that of until")

    def names(self, present: Iterable[str]) -> dict[str, str]:
        """The streams to restore, by the name in the backup, with their new names. BackupError if
        one that is named is not there, or two get the same name.
        """
        known = list(present)
        wanted = set(known) if not self.streams else set()
        for pattern in self.streams:
            found = [name for name in known if fnmatchcase(name, pattern)]
            if not found:
                raise BackupError(f"the backup has no stream {pattern!r}", _listed(known))
            wanted.update(found)
        for old in self.renames:
            if old not in known:
                raise BackupError(f"the backup has no stream {old!r} to rename", _listed(known))
        names = {name: self.renames.get(name, name) for name in known if name in wanted}
        for name, count in Counter(names.values()).items():
            if count > 1:
                raise BackupError(f"two streams would get the name {name!r}")
        return names

    def subject_change(self, old: str, new: str) -> tuple[bytes, bytes]:
        """The beginning of a stream's subjects, before and after; both empty if they stay."""
        prefix = _bucket_prefix(old)
        if old == new or not prefix:
            return b"", b""
        return _subjects_of(old).encode(), _subjects_of(new).encode()


def _listed(names: list[str]) -> str:
    return f"it has: {', '.join(names[:20]) or 'none'}{', ...' if len(names) > 20 else ''}"


def _bucket_prefix(name: str) -> str:
    return next((prefix for prefix, _ in _BUCKETS if name.startswith(prefix)), "")


def _subjects_of(name: str) -> str:
    """The beginning of all subjects of a bucket: `$KV.NAME.`."""
    prefix, start = next(each for each in _BUCKETS if name.startswith(each[0]))
    return f"{start}{name.removeprefix(prefix)}."


def renamed_config(config: Mapping[str, Any], new: str) -> dict[str, Any]:
    """The configuration of a stream under another name."""
    old = str(config["name"])
    changed = {**config, "name": new}
    if old == new:
        return changed
    if _bucket_prefix(old):
        changed["subjects"] = [
            _moved(each, _subjects_of(old), _subjects_of(new))
            for each in config.get("subjects") or []
        ]
        return changed
    for member in ("mirror", "sources", "subject_transform", "republish"):
        changed.pop(member, None)
    changed["subjects"] = [new]
    return changed


def renamed_consumer(consumer: SavedConsumer, old: str, new: str) -> SavedConsumer:
    """A consumer of a bucket that has another name; of any other stream, the consumer as it is."""
    if old == new or not _bucket_prefix(old):
        return consumer
    config = dict(consumer.config)
    before, after = _subjects_of(old), _subjects_of(new)
    if isinstance(config.get("filter_subject"), str):
        config["filter_subject"] = _moved(config["filter_subject"], before, after)
    if isinstance(config.get("filter_subjects"), list):
        config["filter_subjects"] = [
            _moved(each, before, after) for each in config["filter_subjects"]
        ]
    return msgspec.structs.replace(consumer, config=config)


def _moved(subject: str, before: str, after: str) -> str:
    return after + subject[len(before) :] if subject.startswith(before) else subject
