"""The steps of a failback before and after the change-over.

Owns making the old origin a mirror without losing what only it has, and making the standby a mirror
again. It deletes a copy of the stream only if that takes no messages, was compared with the other
side, and the messages that the other side lacks are in a file.

    FENCE      the old origin takes no more messages
    SAVE       its messages that the standby does not have are written to a file; the history that
               both share is compared
    REBUILD    the old origin is deleted and recreated as a mirror of the standby
    ...        the change-over of `change`, from the standby to the origin
    REMIRROR   the standby is deleted and recreated as a mirror of the origin
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.client.api_errors import NoMessageFoundError
from tradewind.recovery.change import ChangeOver
from tradewind.recovery.change_over_marks import RecoveryMark, Role, marked, read_mark
from tradewind.recovery.contents import compare, messages_between, wait_readable
from tradewind.recovery.records import Records
from tradewind.recovery.recovery_errors import RecoveryError
from tradewind.recovery.recovery_journal import RecoveryStep
from tradewind.recovery.saved import SavedFile, SavedMessage
from tradewind.recovery.sides import StreamSide, mirror_config, own_metadata

if TYPE_CHECKING:
    from tradewind.api.stream_types import StreamInfo

SAVED_SUFFIX: Final = ".saved.jsonl"


class Failback(ChangeOver):
    """Makes the old origin the origin again."""

    def actions(self) -> dict[RecoveryStep, Callable[[], None]]:
        """The action of each step."""
        return {
            **super().actions(),
            RecoveryStep.FENCE: self._fence,
            RecoveryStep.SAVE: self._save_extra,
            RecoveryStep.REBUILD: self._rebuild,
            RecoveryStep.REMIRROR: self._remirror,
        }

    # ------------------------------------------------------------------ steps

    def _fence(self) -> None:
        journal, origin = self.journal, self.origin
        info = origin.find()
        if info is None or info.config.mirror is not None:
            return
        if not journal.origin_config:
            journal.origin_config = msgspec.to_builtins(info.config)
            self.save()
        mark = RecoveryMark(id=journal.id, role=Role.PARKED)
        origin.set_subjects([self.parked], marked(info.config.metadata, mark))
        origin.pause(())
        journal.fenced_seq = origin.info().state.last_seq

    def _save_extra(self) -> None:
        """Compare the messages that both may have, and save those that only the origin has; a
        message that the standby has removed since is saved too, unless it is older than all that
        the standby has.
        """
        journal = self.journal
        info = self.origin.find()
        if info is None or info.config.mirror is not None:
            return
        # Messages that arrived right before the fence may still be on their way to the disk.
        wait_readable(self.origin.connection, journal.stream, journal.fenced_seq)
        path = Path(journal.saved_file)
        first_seq = max(self.standby.info().state.first_seq, 1)
        with SavedFile(path, journal.stream, journal.id) as file:

            def keep(seqs: list[int]) -> None:
                for seq in seqs:
                    self._keep(file, seq)

            found = compare(
                self.origin.connection,
                self.standby.connection,
                journal.stream,
                journal.shared_seq,
                first_seq=first_seq,
                missing=keep,
            )
            if found.changed or not found.is_complete:
                raise RecoveryError(
                    f"stream {journal.stream}: origin and standby have no common history up to "
                    f"sequence {journal.shared_seq}: " + "; ".join(found.describe()),
                    "nothing was deleted; the origin accepts no messages",
                )
            for message in messages_between(
                self.origin.connection,
                journal.stream,
                journal.shared_seq + 1,
                journal.fenced_seq,
            ):
                meta = message.metadata
                file.add(
                    SavedMessage.of(
                        message.subject,
                        meta.stream_sequence,
                        meta.timestamp_ns,
                        message.headers,
                        message.data,
                    )
                )
        journal.saved_messages = file.messages
        if file.messages:
            self.say(f"{journal.stream}: saved in {path}: {file.messages}")

    def _keep(self, file: SavedFile, seq: int) -> None:
        try:
            found = self.origin.streams.get_message(self.journal.stream, seq=seq)
        except NoMessageFoundError:
            return  # limits have removed it since
        file.add(
            SavedMessage.of(found.subject, found.seq, found.time_ns, found.headers, found.data)
        )

    def _rebuild(self) -> None:
        journal, origin = self.journal, self.origin
        info = origin.find()
        if info is not None and info.config.mirror is not None:
            return
        if info is not None:
            self._delete(origin, info, journal.fenced_seq, "the origin")
        mirror = {
            "name": journal.stream,
            "external": {"api": journal.standby_api, "deliver": ""},
        }
        self._make_mirror(origin, journal.origin_config or self._recorded_config(), mirror)

    def _remirror(self) -> None:
        journal, standby = self.journal, self.standby
        info, origin_info = standby.find(), self.origin.info()
        # Earlier records are of another time, and maybe of another history.
        records = Records(standby.connection)
        records.record(self.origin, origin_info, journal.origin, time.time_ns())
        if info is not None and info.config.mirror is not None:
            return
        if info is not None:
            self._delete(standby, info, journal.frozen_seq, "the standby")
        self._make_mirror(standby, journal.config, journal.mirror)

    # ------------------------------------------------------------------ details

    def _delete(self, side: StreamSide, info: StreamInfo, last_seq: int, name: str) -> None:
        """Delete a stream, only if this failback has fenced it and nothing was written to it
        since.
        """
        mark = read_mark(info.config)
        is_ours = mark is not None and mark.id == self.journal.id and mark.role is Role.PARKED
        if not is_ours or info.state.last_seq != last_seq:
            raise RecoveryError(
                f"stream {self.journal.stream}: {name} has changed since this failback, so it "
                "is not deleted",
                "see what has changed: tradewind dr status",
            )
        side.streams.delete(self.journal.stream)

    def _recorded_config(self) -> dict[str, Any]:
        """The configuration of an origin whose disk was lost; if it was not recorded, that of the
        standby.
        """
        record = Records(self.standby.connection).stream(self.journal.stream)
        if record is not None:
            return record.config
        config = msgspec.to_builtins(self.standby.info().config)
        return {key: value for key, value in config.items() if key != "num_replicas"}

    def _make_mirror(
        self, side: StreamSide, config: dict[str, Any], mirror: dict[str, Any]
    ) -> None:
        """Create a mirror with the settings that this side had, as far as a mirror may have
        them.
        """
        metadata = marked(own_metadata(config.get("metadata", {})), None)
        side.streams.add(mirror_config(config, mirror, metadata=metadata))
