"""Facts of the machine and of this process that a reader needs to judge a result."""

import datetime
import os
import platform
import resource
from pathlib import Path


def raise_file_limit() -> int:
    """Raises the soft limit of open files to the hard one; servers started later inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def parse_cpu_model(text: str) -> str:
    """The first `model name` of /proc/cpuinfo, or `unknown`."""
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return "unknown"


def facts() -> dict[str, str | int | float]:
    """What is written beside the results; nothing that names the machine or its user."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cpu": parse_cpu_model(Path("/proc/cpuinfo").read_text()),
        "cores": os.cpu_count() or 0,
        "memory_gib": round(pages / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_1min": round(os.getloadavg()[0], 2),
    }
