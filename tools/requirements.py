"""Print the packages that this project and some of its extras require, for `pip install -r`.

    python tools/requirements.py [extras]

Installing them without the project itself lets its modules be compiled at the same time.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def requirements(extras: list[str]) -> list[str]:
    """Those of the project, then those of each extra; SystemExit if there is no such extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional: dict[str, list[str]] = project["optional-dependencies"]
    found: list[str] = list(project["dependencies"])
    for extra in extras:
        if extra not in optional:
            raise SystemExit(f"no extra {extra!r}; there are {', '.join(sorted(optional))}")
        found += optional[extra]
    return found


if __name__ == "__main__":
    sys.stdout.write("\n".join(requirements(sys.argv[1:])) + "\n")
