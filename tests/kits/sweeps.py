"""Many values in one test, where each takes no time: a test of its own costs more than the value.

    @sweep("text", ["1h", "2m"])
    def test_durations(text: str) -> None: ...

It is written like `pytest.mark.parametrize` and fails with the values in question. It is for tests
that leave nothing behind, as the fixtures are made once for all values.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

VALUE_LENGTH_MAX = 200
NAMED_MAX = 20


def sweep(
    names: str | tuple[str, ...], values: Iterable[Any], ids: object = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test with each of these values; `ids` names them, as a call or as a list."""
    several = tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else names
    cases = list(values)
    assert cases, f"no values for {names}"
    labels = [ids(case) for case in cases] if callable(ids) else list(ids or cases)  # type: ignore[call-overload]

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def run(**fixtures: Any) -> None:
            failed: list[str] = []
            first: Exception | None = None
            for case, label in zip(cases, labels, strict=True):
                arguments = dict(zip(several, case if len(several) > 1 else [case], strict=True))
                try:
                    function(**fixtures, **arguments)
                except Exception as error:
                    failed.append(f"{label!r}"[:VALUE_LENGTH_MAX])
                    first = first or error
            if first is not None:
                named = "\n".join(failed[:NAMED_MAX])
                first.add_note(f"{len(failed)} of {len(cases)} values fail, this first:\n{named}")
                raise first

        signature = inspect.signature(function)
        left = [one for name, one in signature.parameters.items() if name not in several]
        assert len(left) == len(signature.parameters) - len(several), f"{function}: {several}"
        run.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return run

    return decorate
