"""Edits a configuration in the user's editor.

Owns the temporary file; the result is checked like any `--config` file.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from tradewind.cli.frame.config_files import Config, read_config, write_config
from tradewind.cli.frame.failures import CommandError


def run_editor(path: str) -> None:
    """Let the user change a file in $EDITOR (else vi)."""
    command: list[str] = shlex.split(os.environ.get("EDITOR", "")) or ["vi"]
    try:
        done = subprocess.run([*command, path], check=False)  # noqa: S603 - the user's own
    except OSError as error:
        raise CommandError(
            f"the editor {command[0]!r} cannot be started: {error.strerror}", "set EDITOR"
        ) from None
    if done.returncode:
        raise CommandError(f"{command[0]} exited with code {done.returncode}; nothing was changed")


def edit_config(config: Config, kind: type[Config]) -> Config:
    """The configuration as it is after the editor was closed."""
    with tempfile.TemporaryDirectory(prefix="tradewind-edit-") as folder:
        path = str(Path(folder) / "config.json")
        write_config(path, config)
        run_editor(path)
        return read_config(path, kind)
