"""The reader of the pages: a page that is wrong has to fail."""

from __future__ import annotations

from pathlib import Path

import pytest
from walkthrough_kit import Step, Walk, matches, steps_of

PAGE = """\
# Title

<!-- terminal a -->
```
$ one \\
  two
first
```

```
more
$ cat << END > file
$ inside
END
$ three
```

```json
{"not": "run"}
```

```python
assert True
```
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    return folder


def test_a_page_is_commands_with_their_outputs() -> None:
    assert list(steps_of(PAGE)) == [
        Step(3, comment="terminal a"),
        Step(5, "one \\\n  two", ("first",)),
        Step(11, "", ("more",)),
        Step(12, "cat << END > file\n$ inside\nEND"),
        Step(15, "three"),
        Step(23, "python", ("assert True",)),
    ]


@pytest.mark.parametrize(
    ("wanted", "printed", "is_same"),
    [
        (("a", "b"), ["a", "b"], True),
        (("a", "b"), ["a"], False),
        (("a",), ["a", "b"], False),
        (("a <any> c",), ["a bb c "], True),
        (("a <any> c",), ["a  c"], False),
        (("a.c",), ["abc"], False),
        (("...", "c"), ["a", "b", "c"], True),
        (("...", "c"), ["a", "b"], False),
        (("a", "...", "c"), ["a", "c"], True),
        ((), [], True),
        ((), ["a"], False),
    ],
)
def test_outputs_are_compared_line_by_line(
    wanted: tuple[str, ...], printed: list[str], is_same: bool
) -> None:
    assert matches(wanted, printed) == is_same


@pytest.mark.parametrize(
    ("block", "says"),
    [
        ("```\n$ echo one\ntwo\n```", "page.md:2: echo one\nit should print:\ntwo"),
        ("```\n$ echo one; false\none\n```", "exit code 1"),
        ("```\n$ echo 'x: error: y'\nx: error: y\n```", "exit code 0"),
        ("```python\nassert False\n```", "AssertionError"),
        ("no blocks", "nothing was run"),
        ("<!-- not run -->\n```\n$ false\n```", "nothing was run"),
    ],
)
def test_a_page_that_is_wrong_fails_with_its_line(
    tmp_path: Path, folder: Path, block: str, says: str
) -> None:
    page = tmp_path / "page.md"
    page.write_text(block)
    with pytest.raises(AssertionError) as caught:
        Walk(page, folder).follow()
    assert says in str(caught.value)


def test_what_is_typed_and_replaced_reaches_the_command(tmp_path: Path, folder: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- here ten is 10 -->\n<!-- types one | ten -->\n```\n$ cat\none\nten\n```\n"
        "<!-- terminal t -->\n```\n$ tail -f ten\nready\n```\n<!-- stop t -->\n"
    )
    (folder / "10").write_text("ready\n")
    walk = Walk(page, folder)
    walk.follow()
    assert walk.done == 2
    assert walk.terminals["t"].process.returncode is not None
