"""What is done once in each Python process of Spark.

Owns the garbage collector's view of such a process, and nothing else. Spark's daemon collects all
garbage after every task, and each time looks at every object of every module that is loaded: 25 ms
for Arrow, Spark and ours, which is more than it takes to read a small micro-batch.
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
