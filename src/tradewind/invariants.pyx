"""Whether compiled code looks at what must hold where one package hands something to another.

Owns one flag, and says when it is set: TRADEWIND_INVARIANTS=1 in the environment, as in every test
and under the sanitizers. Then a broken promise is an AssertionError at the border that it would
cross, before bytes are written, replies leave or a number is believed, instead of damage that
somebody finds later:

    if invariants.checked:
        assert floor <= delivered, (floor, delivered)

Without it a border costs the look at the flag, once per batch or operation, never per byte. What
a peer or a disk may do wrong is not for here: that is refused with an error, always.
"""

import os

cdef bint checked = os.environ.get("TRADEWIND_INVARIANTS") == "1"


def are_checked():
    """For Python callers."""
    return bool(checked)
