"""The outcome of a command; `tests/cli/conftest.py` has the fixtures that run commands."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest


@dataclass(frozen=True)
class Outcome:
    """The output of a command, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.out)

    def ok(self) -> Outcome:
        assert self.code == 0, f"exit code {self.code}: {self.err}"
        return self


Cli = Callable[..., Outcome]
Spawn = Callable[..., "subprocess.Popen[str]"]
Types = Callable[..., None]


class Keyboard(io.StringIO):
    """A terminal on which these lines are typed."""

    def isatty(self) -> bool:
        return True


def type_in(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    """Set the standard input of the next command."""
    file = SimpleNamespace(buffer=io.BytesIO(data), isatty=lambda: False, closed=False)
    monkeypatch.setattr("sys.stdin", file)
