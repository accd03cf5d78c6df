"""Refusals of the API as exceptions."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import tradewind.errors
from sweeps import sweep
from tradewind.api.errors import ERROR_KINDS, ApiError, ErrorKind
from tradewind.client import api_errors
from tradewind.client.api_errors import (
    JetStreamApiError,
    StreamNotFoundError,
    StreamWrongLastSequenceError,
    make_api_error,
)
from tradewind.client.errors import ClientError
from tradewind.errors import TradewindError

ROOT = Path(__file__).resolve().parents[3]


@sweep("kind", ERROR_KINDS.values(), ids=lambda kind: str(kind.err_code))
def test_every_error_code_has_a_class_of_its_own(kind: ErrorKind) -> None:
    error = make_api_error(kind.code, kind.err_code, kind.text)
    assert type(error) is not JetStreamApiError
    assert isinstance(error, JetStreamApiError)
    assert isinstance(error, ApiError)
    assert isinstance(error, ClientError)
    assert isinstance(error, TradewindError)
    assert (error.code, error.err_code, error.description) == (
        kind.code,
        kind.err_code,
        kind.text,
    )
    assert str(error).startswith(f"{kind.text} ({kind.err_code})")


def test_the_server_text_comes_first_and_the_hint_behind_it() -> None:
    error = make_api_error(400, 10071, "wrong last sequence: 7")
    assert isinstance(error, StreamWrongLastSequenceError)
    assert str(error) == f"wrong last sequence: 7 (10071): {error.hint}"
    assert error.hint


def test_a_code_of_a_newer_server_is_a_plain_api_error() -> None:
    error = make_api_error(418, 19999, "teapot")
    assert type(error) is JetStreamApiError
    assert str(error) == "teapot (19999)"


def test_hints_belong_to_errors_that_exist() -> None:
    assert set(api_errors._HINTS) <= set(api_errors.kinds())  # type: ignore[attr-defined]


def test_a_misspelt_error_is_named() -> None:
    with pytest.raises(AttributeError, match="no error 'StreamLostError'"):
        _ = api_errors.StreamLostError  # type: ignore[attr-defined]
    assert StreamNotFoundError.__name__ == "StreamNotFoundError"


def test_a_class_is_the_same_however_it_is_reached() -> None:
    raised = make_api_error(404, 10037, "no message found")
    assert type(raised) is api_errors.NoMessageFoundError
    assert type(raised) is tradewind.errors.NoMessageFoundError
    kept = pickle.dumps(api_errors.NoMessageFoundError)
    assert pickle.loads(kept) is type(raised)


def test_all_classes_are_imported_with_a_star() -> None:
    names: dict[str, object] = {}
    exec("from tradewind.client.api_errors import *", names)
    assert {api_errors.class_name(name) for name in api_errors.kinds()} <= set(names)
    assert names["JetStreamApiError"] is JetStreamApiError


def test_the_list_for_type_checkers_is_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "tools/api_errors_stub.py"), "--check"]
    assert subprocess.run(command, check=False).returncode == 0, "run tools/api_errors_stub.py"
