"""Responses of an auth callout service: from bytes to the claims of a user.

Owns the checks of a response: it must be decrypted and verified, address this server and this
request, and contain no error. It never decides about the user, which is up to the gate that sent
the request. The texts of refusals are those of nats-server.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tradewind import nkeys
from tradewind.durations import SECOND_NS
from tradewind.errors import TradewindError
from tradewind.jwt import JwtError, UserClaims, decode_as
from tradewind.jwt.claim_rules import issues
from tradewind.jwt.claims import AuthorizationResponse

_JWT_BEGIN = b"eyJ"
_SHOWN_MAX = 256


class CalloutError(TradewindError):
    """A response that refuses the login; the text is for the log."""


class CalloutQuestion(msgspec.Struct, frozen=True):
    """A request to the service: its key that stands for the user, its account, and who may answer.

    `xkey` is the curve key of the service; if empty, nothing is encrypted. `is_issuer` says whether
    a key (and the account it claims to belong to) may answer.
    """

    user_key: str
    account: str
    xkey: str
    server_id: str
    is_issuer: Callable[[str, str], bool]


def read_answer(
    question: CalloutQuestion, payload: bytes, curve: nkeys.CurveKeyPair, now_ns: int
) -> UserClaims:
    """The user that a service admits; CalloutError if the response or its content is not valid."""
    response, is_boxed = _open(question, payload, curve)
    problems = issues(response, now_ns // SECOND_NS)
    if problems:
        text = problems[0].text
        raise CalloutError(f"Authorization response had validation errors: {text}")
    if response.sub != question.user_key:
        raise CalloutError("Auth callout violation: auth callout response is not for expected user")
    if response.aud != question.server_id:
        raise CalloutError("Auth callout violation: auth callout response is not for server")
    # An encrypted box proves who sealed it.
    if not is_boxed and not question.is_issuer(response.iss, response.nats.issuer_account):
        raise CalloutError("Auth callout signing key is unknown")
    if response.nats.error:
        raise CalloutError(f"Auth callout service returned an error: {_shown(response.nats.error)}")
    try:
        claims = decode_as(UserClaims, response.nats.jwt)
    except JwtError as error:
        raise CalloutError(_capital(str(error))) from None
    problems = issues(claims, now_ns // SECOND_NS)
    if problems:
        raise CalloutError(f"Error validating user JWT: {problems[0].text}")
    if claims.sub != question.user_key:
        raise CalloutError(
            f'Expected authorized user of "{question.user_key}" but got "{claims.sub}" '
            f'on account "{question.account}"'
        )
    return claims


def _open(
    question: CalloutQuestion, payload: bytes, curve: nkeys.CurveKeyPair
) -> tuple[AuthorizationResponse, bool]:
    """The response, and whether it was encrypted."""
    if not payload:
        raise CalloutError(
            f'Auth callout violation: "no reason supplied" on account "{question.account}"'
        )
    is_boxed = bool(question.xkey) and not payload.startswith(_JWT_BEGIN)
    if is_boxed:
        try:
            payload = curve.open(payload, question.xkey)
        except nkeys.NkeyError as error:
            raise CalloutError(
                f'Error decrypting auth callout response on account "{question.account}": {error}'
            ) from None
    try:
        return decode_as(AuthorizationResponse, payload.decode("utf-8", "replace")), is_boxed
    except JwtError as error:
        raise CalloutError(_capital(str(error))) from None


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _shown(text: str) -> str:
    """A text of a service, shortened and escaped to one line."""
    return text[:_SHOWN_MAX].encode("unicode_escape").decode("ascii")
