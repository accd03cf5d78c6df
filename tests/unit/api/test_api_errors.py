"""The table of errors, against texts taken from the official server."""

from __future__ import annotations

import pytest

from tradewind.api import errors
from tradewind.api.errors import ERROR_KINDS, ApiError


def test_the_table_has_every_code_of_the_official_server_once() -> None:
    assert set(ERROR_KINDS) == set(range(10002, 10229))


@pytest.mark.parametrize(
    ("error", "code", "err_code", "description"),
    [
        (errors.STREAM_NOT_FOUND(), 404, 10059, "stream not found"),
        (errors.STREAM_WRONG_LAST_SEQUENCE(seq=7), 400, 10071, "wrong last sequence: 7"),
        (errors.STREAM_INVALID_CONFIG(err="no {braces} lost"), 500, 10052, "no {braces} lost"),
        (
            errors.STREAM_EXTERNAL_API_OVERLAP(prefix="a", subject="b"),
            400,
            10021,
            "stream external api prefix a must not overlap with b",
        ),
    ],
)
def test_an_error_says_what_the_official_server_says(
    error: ApiError, code: int, err_code: int, description: str
) -> None:
    document = {"code": code, "err_code": err_code, "description": description}
    assert error.as_dict() == document
    assert ApiError.from_dict(document).as_dict() == document


def test_a_forgotten_place_is_a_bug_that_shows() -> None:
    with pytest.raises(KeyError):
        errors.SEQUENCE_NOT_FOUND()


def test_an_error_knows_its_kind() -> None:
    assert errors.CONSUMER_NOT_FOUND().is_kind(errors.CONSUMER_NOT_FOUND)
    assert not errors.CONSUMER_NOT_FOUND().is_kind(errors.STREAM_NOT_FOUND)
