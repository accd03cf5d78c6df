"""tests/kits/ports.py: processes that start servers side by side do not take each other's ports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

# In a program of its own: a process with threads should not fork.
FORKS = """
import json, os, ports
for _ in range(3):
    if os.fork() == 0:
        os.write(1, json.dumps(ports.free_ports(20)).encode() + b"\\n")
        os._exit(0)
for _ in range(3):
    os.wait()
"""


def test_forked_processes_begin_apart() -> None:
    folder = Path(__file__).parents[1] / "kits"
    output = subprocess.check_output([sys.executable, "-c", FORKS], cwd=folder, text=True)
    shares = [set(json.loads(line)) for line in output.splitlines()]
    assert len(set.union(*shares)) == 60
