"""The name of the Spark that runs on this machine.

Owns the number of attempts of a task. Spark gives a task of `local[*]` only one: a single Python
process that the system ends would end a query, and with it a pipeline. On a cluster it gives four.
"""

from __future__ import annotations

from typing import Final

LOCAL_MASTER: Final = "local[*,4]"
