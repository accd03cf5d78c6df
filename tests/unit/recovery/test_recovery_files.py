"""Saved messages, marks and comparisons: what is written is read again."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tradewind.api.stream_types import StreamConfig
from tradewind.client.core.headers import Headers
from tradewind.recovery import Comparison, RangeDifference, RecoveryError
from tradewind.recovery.change_over_marks import MARK, RecoveryMark, Role, marked, read_mark
from tradewind.recovery.saved import FORM, SavedFile, SavedMessage, read_saved

# As the client decodes bytes that are not UTF-8.
TEXT = st.binary(min_size=1, max_size=20).map(lambda data: data.decode("utf-8", "surrogateescape"))


@settings(max_examples=30, deadline=None)  # each one is synced
@given(st.lists(st.tuples(TEXT, st.lists(st.tuples(TEXT, TEXT), max_size=3), st.binary())))
def test_saved_messages_come_back_byte_by_byte(
    tmp_path_factory: pytest.TempPathFactory,
    messages: list[tuple[str, list[tuple[str, str]], bytes]],
) -> None:
    path = tmp_path_factory.mktemp("saved") / "S.saved.jsonl"
    with SavedFile(path, "S", "abc") as file:
        for seq, (subject, fields, data) in enumerate(messages, 1):
            headers = Headers()
            for name, value in fields:
                headers.add(name, value)
            file.add(SavedMessage.of(subject, seq, seq * 1001, headers, data))
    assert path.exists() == bool(messages)
    if messages:
        found = [(*message.texts(), message.data) for message in read_saved(path)]
        assert [(one[0], sorted(one[1]), one[2]) for one in found] == [
            (subject, sorted(fields), data) for subject, fields, data in messages
        ]


def test_an_interrupted_file_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "S.saved.jsonl"

    def save() -> None:
        with SavedFile(path, "S", "abc") as file:
            file.add(SavedMessage(seq=1, time="2026-01-01T00:00:00Z", subject="a"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "not a file of saved messages"),
        (b'{"form":"x","stream":"S","change":"a"}\n', "'x' is not"),
        (b'{"form":"%s","stream":"S","change":"a"}\n{}\n' % FORM.encode(), ":2: not a message"),
    ],
)
def test_another_file_is_named_with_its_line(tmp_path: Path, content: bytes, text: str) -> None:
    path = tmp_path / "S.saved.jsonl"
    path.write_bytes(content)
    with pytest.raises(RecoveryError, match=text):
        list(read_saved(path))


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=5)), st.integers(0, 2**63))
def test_a_mark_changes_no_other_metadata(metadata: dict[str, str], last_seq: int) -> None:
    mark = RecoveryMark(id="abc", role=Role.PROMOTED, last_seq=last_seq, mirror={"name": "S"})
    written = marked(metadata, mark)
    assert read_mark(StreamConfig(name="S", metadata=written)) == mark
    assert marked(written, None) == {key: metadata[key] for key in metadata if key != MARK}


def test_a_damaged_mark_is_an_error_with_the_name_of_the_stream() -> None:
    with pytest.raises(RecoveryError, match="stream S: its metadata"):
        read_mark(StreamConfig(name="S", metadata={MARK: "promoted"}))


def test_a_difference_names_neighbours_as_a_range() -> None:
    found = Comparison(1, 100)
    found.differences = [RangeDifference(1, 100, 4, 1, 0, [3, 4, 5, 9], [7], [])]
    assert found.describe() == [
        "sequences 1 to 100: 4 only at the origin (3-5, 9), 1 only at the standby (7)"
    ]
