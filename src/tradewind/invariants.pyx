"""Whether compiled code checks its invariants where one package passes something to another.

Owns one flag and defines when it is set: with TRADEWIND_INVARIANTS=1 in the environment, as in
every test and under the sanitizers. A violation is then an AssertionError at the boundary, before
bytes are written, replies leave or a number is trusted, instead of damage found later:

    if invariants.checked:
        assert floor <= delivered, (floor, delivered)

Otherwise a boundary costs one test of the flag per batch or operation, never per byte. Faults that
a peer or a disk can cause do not belong here: they are always refused with an error.
"""

import os

cdef bint checked = os.environ.get("TRADEWIND_INVARIANTS") == "1"


def are_checked():
    """The flag, for Python code."""
    return bool(checked)
