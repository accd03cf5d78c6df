"""Every `pip install` that a reader could copy works: nothing named there is unpublished."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path

from sweeps import sweep

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = set(PROJECT["optional-dependencies"])
# Published packages that are in no requirement of ours.
FOREIGN = {"jupyterlab", "nats-py", "pip"}
# In a span a command may go on in the next line, elsewhere it ends with its own.
SPAN = re.compile(r"`[^`\n]*pip3? (?:install|wheel)\b([^`]*)`")
LINE = re.compile(r"pip3? (?:install|wheel)\b([^`\n]*)$", re.MULTILINE)
# A place of this project in a copy of its repository, or one of its wheels, with or without extras.
OWN = re.compile(
    r"(?:\.|\.\./\.\.|(?:/\w+/|dist/)?tradewind-[\w.*-]+\.whl|\*\.whl)(?:\[([\w,-]+)\])?"
)


def texts() -> list[Path]:
    """Everything that a reader could copy a command from, except for how the project is tested."""
    folders = [ROOT / name for name in ("docs", "examples", "deploy", "src")]
    suffixes = {".md", ".py", ".pyi", ".pyx", ".ipynb", ".yaml", ".yml", ".conf"}
    found = [path for folder in folders for path in folder.rglob("*") if path.suffix in suffixes]
    return [*sorted(found), *ROOT.glob("*.md"), ROOT / "Makefile", ROOT / "deploy" / "Dockerfile"]


def readable(path: Path) -> str:
    """A text, or the cells of a notebook."""
    text = path.read_text()
    if path.suffix == ".ipynb":
        return "\n\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
    return text.replace("\\\n", " ")


def published() -> set[str]:
    """Packages that an index has."""
    lists = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    named = {re.split(r"[\[<>=~!]", line)[0] for lines in lists for line in lines}
    pinned = (ROOT / "constraints.txt").read_text()
    return named | FOREIGN | set(re.findall(r"^([\w.-]+)==", pinned, re.MULTILINE))


def commands(text: str) -> list[str]:
    """What comes after each `pip install` of a text."""
    return [found for found in [*SPAN.findall(text), *LINE.findall(text)] if found.strip()]


def problem(command: str) -> str:
    """What is wrong with the words after `pip install`; empty if nothing is."""
    for word in re.findall(r"'[^']*'|\"[^\"]*\"|[^\s'\"]+", command):
        target = word.strip("'\"")
        if own := OWN.fullmatch(target):
            unknown = set(filter(None, (own[1] or "").split(","))) - EXTRAS
            if unknown:
                return f"{target}: no extra {unknown}"
        elif re.split(r"[\[<>=~!]", target)[0] == PROJECT["name"]:
            return f"{target}: not published"
    return ""


@sweep("path", texts(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_command_installs_what_is_not_published(path: Path) -> None:
    text = readable(path)
    problems = [found for command in commands(text) if (found := problem(command))]
    assert not problems
    if path.name != "extra_packages.py":
        assert not re.findall(r"(?<![\w/.-])tradewind\[[a-z,{]", text)


def test_commands_are_found_and_judged() -> None:
    assert len([command for path in texts() for command in commands(readable(path))]) > 15
    assert commands("see `pip install\n.`\n$ pip install x\ntradewind") == ["\n.", " x"]
    assert problem(" 'tradewind[spark]'") == "tradewind[spark]: not published"
    assert problem(" tradewind pyarrow") == "tradewind: not published"
    assert problem(" '.[sparks]'") == ".[sparks]: no extra {'sparks'}"
    assert problem(" 'dist/tradewind-0.1.0-cp311-cp311-linux.whl[nope]'").endswith("{'nope'}")
    assert problem(" '.[spark,iceberg]' duckdb") == ""


def test_blocks_install_only_what_exists() -> None:
    """In blocks of commands, where every word is an argument."""
    unknown = []
    for path in texts():
        if path.suffix == ".md":
            for line in re.findall(
                r"^(?:\$ |RUN )?pip install (.+)$", path.read_text(), re.MULTILINE
            ):
                words = [word for word in shlex.split(line) if not word.startswith("-")]
                names = [
                    re.split(r"[\[<>=~!]", word)[0] for word in words if not OWN.fullmatch(word)
                ]
                unknown += [f"{path.name}: {name}" for name in names if name not in published()]
    assert not unknown


def test_the_table_of_extras_is_complete() -> None:
    page = (ROOT / "docs" / "how-to" / "INSTALL.md").read_text()
    table = page.partition("## Extras")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE)) == EXTRAS
