"""YAML and JSON as values with lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tradewind.documents import DEPTH_MAX, FILE_BYTES_MAX, Document
from tradewind.errors import ConfigError


def parse_document(path: str, content: bytes) -> Document:
    document = Document(Path(path))
    document.parse(content)
    return document


YAML = b"""# a comment
streams:
  ORDERS:
    subjects:
    - orders.>
    - "returns"
    max_msgs: 1_000

  on: {}
"""


def test_values_remember_their_lines() -> None:
    document = parse_document("f.yaml", YAML)
    assert document.value == {
        "streams": {"ORDERS": {"subjects": ["orders.>", "returns"], "max_msgs": 1000}, "on": {}}
    }
    assert document.place(()).key_line == 2
    assert document.place(("streams", "ORDERS")).key_line == 3
    assert document.place(("streams", "ORDERS", "subjects", 1)).key_line == 6
    assert document.place(("streams", "on")).key_line == 9
    assert document.place(("streams", "ORDERS", "no such member")).key_line == 3
    assert str(document.error(("streams", "on"), "wrong")) == "f.yaml:9: wrong"


def test_json_is_read_too_with_tabs_and_escapes() -> None:
    text = '{\n\t"streams": {\n\t\t"A": {"description": "\\ud83d\\ude00 \\/ \\u00e4"}\n\t}\n}\n'
    document = parse_document("f.json", text.encode())
    assert document.value == json.loads(text)
    assert document.place(("streams", "A", "description")).key_line == 3


def test_nothing_is_no_value() -> None:
    assert parse_document("f", b"").value is None
    assert parse_document("f", b"# only a comment\n").value is None


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"a: 1\nb: 2\na: 3\n", "f:3: 'a' appears twice; first in line 1"),
        (b"a: [1, 2\nb: 3\n", "f:2: not valid YAML or JSON: "),
        (b"a: 'x\n", "f:2: not valid YAML or JSON: "),
        (b"ok: 1\n? [1, 2]\n: 3\n", "f:2: a key must be a string"),
        (b"ok: 1\nx: \xff\n", "f:2: byte 9 is not UTF-8"),
        (b"a: !!int x\n", "f:1: 'x' is not a value of type"),
        (b"a: !!python/object:os.system x\n", "f:1: 'x' is not a value of type"),
        (b"a: *b\n", "f:1: not valid YAML or JSON: found undefined alias"),
        (b"a: 1\n---\nb: 2\n", "f:2: not valid YAML or JSON: but found another document"),
        (b"\t- x\n", "f:1: not valid YAML or JSON: "),
        (b"a: \x00\n", "f:1: not valid YAML or JSON: "),
        (b"x" * (FILE_BYTES_MAX + 1), f"f: more than {FILE_BYTES_MAX} bytes"),
        (b"[" * (DEPTH_MAX + 2) + b"]" * (DEPTH_MAX + 2), f"or {DEPTH_MAX} levels"),
        (b"[" * 100_000, "f:1: not valid YAML or JSON: "),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(content: bytes, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_document("f", content)
    assert says in str(caught.value)


def test_aliases_of_aliases_do_not_fill_memory() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    with pytest.raises(ConfigError, match="more than 100000 values"):
        parse_document("f", "\n".join(lines).encode())


def test_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file or directory"):
        Document(tmp_path / "none.yaml").read()
    (tmp_path / "some.yaml").write_bytes(b"\xef\xbb\xbfa: 1\n")
    document = Document(tmp_path / "some.yaml")
    document.read()
    assert document.value == {"a": 1}


def test_a_text_over_several_lines_knows_where_each_is() -> None:
    document = parse_document("f", b"a:\n  sql: |\n    one\n    two\n  b: text\n")
    assert [document.place(("a", "sql")).at(line) for line in (0, 1)] == [3, 4]
    assert document.place(("a", "b")).at(0) == 5
