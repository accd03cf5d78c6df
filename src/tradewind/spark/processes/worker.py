"""Initialises each Python process of Spark.

Owns the garbage collector settings of such a process, and nothing else. Spark's daemon runs a full
collection after every task, which visits every object of every loaded module: 25 ms for Arrow,
Spark and Tradewind, which is more than it takes to read a small micro-batch.
"""

from __future__ import annotations

import gc
import sys

_DAEMON = "pyspark.daemon"


def spare_modules() -> None:
    """Have the collector pass over what is loaded by now, the first time this is called here.

    Only in a process that Spark's daemon has made: in others the collector is not ours.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name == _DAEMON and not gc.get_freeze_count():
        gc.freeze()
