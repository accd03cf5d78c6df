"""Claims to signed text and back, and every way in which a text is refused."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jwt_kit import (
    OPERATOR,
    STRANGER,
    account_jwt,
    account_key,
    now,
    raw_jwt,
    user_jwt,
    user_key,
)
from tradewind import nkeys
from tradewind.jwt import JwtError, codec, decode, decode_as, encode
from tradewind.jwt.claims import (
    AccountClaims,
    ActivationClaims,
    ActivationFields,
    AuthorizationRequest,
    AuthorizationResponse,
    Claims,
    GenericClaims,
    OperatorClaims,
    UserClaims,
    UserScope,
    new_account,
    new_operator,
    new_user,
)

ACCOUNT = account_key(1)
USER = user_key(1)


def document(**nats: Any) -> dict[str, Any]:
    return {
        "iss": ACCOUNT.public,
        "sub": USER.public,
        "iat": 5,
        "nats": {"type": "user", "version": 2, **nats},
    }


def refusal(token: str) -> str:
    with pytest.raises(JwtError) as caught:
        decode(token)
    return str(caught.value)


def read_or_refused(token: str) -> Claims | None:
    """None: refused, in one line."""
    text = ""
    try:
        return decode(token)
    except JwtError as error:
        text = str(error)
    assert text
    assert "\n" not in text
    return None


@pytest.mark.parametrize(
    ("claims", "signer"),
    [
        (new_operator(OPERATOR.public, "op"), OPERATOR),
        (new_account(ACCOUNT.public, "acc"), OPERATOR),
        (new_account(ACCOUNT.public), ACCOUNT),
        (new_user(USER.public, "u"), ACCOUNT),
        (
            ActivationClaims(
                sub=ACCOUNT.public, nats=ActivationFields(subject="a.>", kind="stream")
            ),
            account_key(2),
        ),
        (AuthorizationRequest(sub="x"), nkeys.KeyPair(nkeys.SERVER, b"\7" * 32)),
        (AuthorizationResponse(sub=USER.public), ACCOUNT),
        (GenericClaims(sub="anything", nats={"Any": [1, {"Case": None}]}), USER),
    ],
)
def test_what_is_signed_comes_back(claims: Any, signer: nkeys.KeyPair) -> None:
    token = encode(claims, signer, 77)
    back = decode_as(type(claims), token)
    assert (back.iss, back.iat, back.sub, back.name) == (
        signer.public,
        77,
        claims.sub,
        claims.name,
    )
    assert len(back.jti) == 52
    assert encode(back, signer, 77) == token, "the same claims at the same time are the same text"
    assert claims.iat == 0, "the caller's claims are not changed"


def test_equal_claims_have_equal_ids_and_others_do_not() -> None:
    first = decode(user_jwt(USER, ACCOUNT, issued_at=1))
    again = decode(user_jwt(USER, ACCOUNT, issued_at=1))
    later = decode(user_jwt(USER, ACCOUNT, issued_at=2))
    assert first.jti == again.jti != later.jti


def test_version_one_is_read_into_the_form_of_version_two() -> None:
    old = {
        "iss": ACCOUNT.public,
        "sub": USER.public,
        "type": "user",
        "tags": ["a"],
        "issuer_account": account_key(2).public,
        "nats": {"pub": {"allow": ["x"]}, "src": "10.0.0.0/8, 1.2.3.4/32"},
    }
    token = raw_jwt(old, ACCOUNT, {"typ": "jwt", "alg": "ed25519"}, old_signature=True)
    claims = decode_as(UserClaims, token)
    assert claims.nats.tags == ["a"]
    assert claims.account == account_key(2).public
    assert claims.nats.src == ["10.0.0.0/8", "1.2.3.4/32"]
    assert (claims.nats.subs, claims.nats.data, claims.nats.payload) == (-1, -1, -1)
    assert refusal(raw_jwt(old, ACCOUNT)) == "claim failed V1 signature verification"


def test_names_are_read_in_any_case_and_null_is_absent() -> None:
    token = raw_jwt(
        {
            "ISS": ACCOUNT.public,
            "Sub": USER.public,
            "EXP": 9,
            "nbf": None,
            "NATS": {"Type": "user", "VERSION": 2, "Bearer_Token": True, "pub": {"ALLOW": ["A"]}},
        },
        ACCOUNT,
    )
    claims = decode_as(UserClaims, token)
    assert (claims.exp, claims.nbf, claims.nats.bearer_token) == (9, 0, True)
    assert claims.nats.pub.allow == ["A"]


def test_keys_that_are_data_keep_their_case() -> None:
    token = account_jwt(
        ACCOUNT, revocations={"UABC": 5, "*": 1}, mappings={"Foo.Bar": []}, tags=["T"]
    )
    claims = decode_as(AccountClaims, token)
    assert claims.nats.revocations == {"UABC": 5, "*": 1}
    assert list(claims.nats.mappings) == ["Foo.Bar"]


def test_signing_keys_are_names_or_scopes_and_a_template_has_no_limit_unless_it_says_so() -> None:
    scope = {"kind": "user_scope", "key": account_key(3).public, "template": {"subs": 7}}
    fields = {
        "iss": OPERATOR.public,
        "sub": ACCOUNT.public,
        "nats": {
            "type": "account",
            "version": 2,
            "signing_keys": [account_key(2).public, scope, 5],
        },
    }
    scopes = decode_as(AccountClaims, raw_jwt(fields, OPERATOR)).scopes()
    assert scopes[account_key(2).public] is None
    found = scopes[account_key(3).public]
    assert isinstance(found, UserScope)
    assert (found.template.subs, found.template.payload) == (7, -1)


BREAKS = {
    "no text": ("", "expected 3 chunks"),
    "two chunks": ("a.b", "expected 3 chunks"),
    "four chunks": ("a.b.c.d", "expected 3 chunks"),
    "too long": ("e" * (codec.TOKEN_BYTES_MAX + 1), "at most 1048576 are allowed"),
    "a header that is no base64": ("e!J.e30.AAAA", "illegal base64 data at input byte 1"),
    "padded base64": ("e30=.e30.AAAA", "illegal base64 data at input byte 3"),
    "a length that base64 cannot have": ("e30.e30.AAAAA", "not supported type"),
    "standard base64": ("e3+.e30.AAAA", "illegal base64 data at input byte 2"),
    "text outside ASCII": ("é.e30.AAAA", "illegal base64 data at input byte 0"),
    "digits of another script": (
        "\u0661\u0662\u0663.e30.AAAA",
        "illegal base64 data at input byte 0",
    ),
    "no header": ("e30.e30.AAAA", 'not supported type ""'),
}


@pytest.mark.parametrize("name", BREAKS)
def test_text_that_is_no_jwt(name: str) -> None:
    token, wanted = BREAKS[name]
    assert wanted in refusal(token)


HEADERS = [
    ({"typ": "JWT", "alg": "none"}, 'unexpected "none" algorithm'),
    ({"typ": "JWT", "alg": "None"}, 'unexpected "None" algorithm'),
    ({"typ": "JWT", "alg": ""}, 'unexpected "" algorithm'),
    ({"typ": "JWT"}, 'unexpected "" algorithm'),
    ({"typ": "JWT", "alg": "HS256"}, 'unexpected "HS256" algorithm'),
    ({"typ": "JWT", "alg": "ed25519-nkeys"}, "unexpected"),
    ({"typ": "JWS", "alg": "ed25519-nkey"}, 'not supported type "JWS"'),
    ({"typ": 5, "alg": "ed25519-nkey"}, "typ and alg must be strings"),
    ({"typ": "JWT", "alg": ["ed25519"]}, "typ and alg must be strings"),
    ([], "header must be a JSON object"),
    (b"{", "header must be valid JSON"),
    (b"\xff\xfe", "header must be valid JSON"),
    ({"typ": "x\n" * 100, "alg": ""}, 'not supported type "x\\nx\\n'),
]


@pytest.mark.parametrize(("header", "wanted"), HEADERS)
def test_header_of_another_kind(header: Any, wanted: str) -> None:
    text = refusal(raw_jwt(document(), ACCOUNT, header))
    assert wanted in text
    assert "\n" not in text


WRONG: list[tuple[Any, str]] = [
    ([], "claims must be a JSON object"),
    (b"{", "claims must be valid JSON"),
    (b'{"a":' + b"[" * 20_000 + b"]" * 20_000 + b"}", "claims must be valid JSON"),
    ({**document(), "exp": "soon"}, "Expected `int`, got `str` - at `$.exp`"),
    ({**document(), "exp": 10**30}, "$.exp"),
    ({**document(), "iat": -(10**30)}, "$.iat"),
    ({**document(), "exp": 1e10}, "Expected `int`, got `float` - at `$.exp`"),
    ({**document(), "exp": True}, "$.exp"),
    ({**document(), "nats": []}, "nats must be an object"),
    (document(type=5), "type must be a string"),
    (document(version="2"), "version an integer"),
    (document(version=True), "version an integer"),
    (document(version=3), "JWT was generated by a newer version"),
    (document(version=0), "library supports version 2 or less - received 0"),
    (document(version=-7), "library supports version 2 or less - received -7"),
    (document(type="server"), "ServerClaims are not supported"),
    (document(type="cluster"), "ClusterClaims are not supported"),
    (document(bearer_token=1), "$.nats.bearer_token"),
    (document(pub=["a"]), "$.nats.pub"),
    (document(pub={"allow": "a"}), "$.nats.pub.allow"),
    (document(times=[5]), "$.nats.times[0]"),
    ({**document(), "iss": USER.public}, "claim failed V2 signature verification"),
    ({**document(), "iss": ""}, "claim failed V2 signature verification"),
    ({**document(), "iss": "A" * 56}, "claim failed V2 signature verification"),
]


@pytest.mark.parametrize(("claims", "wanted"), WRONG)
def test_claims_of_a_wrong_form(claims: Any, wanted: str) -> None:
    assert wanted in refusal(raw_jwt(claims, ACCOUNT))


def test_scope_of_an_unknown_kind_is_refused() -> None:
    fields = {
        "iss": OPERATOR.public,
        "sub": ACCOUNT.public,
        "nats": {"type": "account", "version": 2, "signing_keys": [{"kind": "x", "key": "k"}]},
    }
    assert refusal(raw_jwt(fields, OPERATOR)) == 'unknown signing key scope "x"'


def test_only_keys_of_the_right_kind_may_issue() -> None:
    by_user = {**document(), "iss": user_key(9).public}
    assert refusal(raw_jwt(by_user, user_key(9))).endswith("prefixes - [account]")
    by_operator = {**document(), "iss": OPERATOR.public}
    assert refusal(raw_jwt(by_operator, OPERATOR)).endswith("prefixes - [account]")
    with pytest.raises(JwtError, match=r"prefixes - \[operator\]"):
        encode(new_operator(OPERATOR.public), ACCOUNT, 1)
    with pytest.raises(JwtError, match="public key of a user"):
        encode(new_user(ACCOUNT.public), ACCOUNT, 1)
    with pytest.raises(JwtError, match="subject is not set"):
        encode(new_user(""), ACCOUNT, 1)


def test_claims_of_another_kind_are_named() -> None:
    with pytest.raises(JwtError, match="not account claim"):
        decode_as(AccountClaims, user_jwt(USER, ACCOUNT))
    with pytest.raises(JwtError, match="not operator claim"):
        decode_as(OperatorClaims, account_jwt(ACCOUNT))


def test_claims_too_large_to_be_read_are_not_signed() -> None:
    claims = new_account(ACCOUNT.public)
    claims.nats.description = "x" * codec.TOKEN_BYTES_MAX
    with pytest.raises(JwtError, match="at most 1048576 are allowed"):
        encode(claims, OPERATOR, 1)


@given(st.integers(0, 5000), st.sampled_from("AZaz09-_.=\n é\0"))
def test_any_changed_character_is_noticed_or_changes_nothing(position: int, character: str) -> None:
    token = TOKEN
    position %= len(token)
    changed = token[:position] + character + token[position + 1 :]
    claims = read_or_refused(changed)
    # Only bits of the last character of a chunk that no byte has can differ.
    assert claims is None or claims == decode(token)


TOKEN = user_jwt(USER, ACCOUNT, issued_at=5)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["nats", "type", "version", "exp", "pub", "allow", "src", "limits"])
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON, st.sampled_from(["user", "account", "operator", "activation", "x"]))
def test_signed_claims_of_any_form_are_read_or_refused(content: Any, kind: str) -> None:
    fields = {"iss": ACCOUNT.public, "sub": USER.public, "nats": content}
    if isinstance(content, dict):
        fields["nats"] = {"type": kind, "version": 2, **content}
    read_or_refused(raw_jwt(json.dumps(fields).encode("utf-8", "surrogatepass"), ACCOUNT))


@given(st.binary(max_size=200))
def test_bytes_of_any_kind_are_refused(data: bytes) -> None:
    chunk = base64.urlsafe_b64encode(data).rstrip(b"=").decode()
    refusal(f"{chunk}.{chunk}.{chunk}")
    header = TOKEN.split(".", maxsplit=1)[0]
    refusal(f"{header}.{chunk}.{chunk}")


def test_a_reader_remembers_good_texts_and_never_bad_ones() -> None:
    read = codec.reader(UserClaims, 2, 2000)
    tokens = [user_jwt(user_key(number), ACCOUNT) for number in range(4)]
    first = read(tokens[0])
    assert read(tokens[0]) is first
    for token in tokens[1:]:
        read(token)
    assert read(tokens[0]) is not first, "the oldest is forgotten"
    forged = tokens[1][:-4] + "AAAA"
    for _ in range(2):
        with pytest.raises(JwtError):
            read(forged)
    long = user_jwt(USER, ACCOUNT, tags=["x" * 3000])
    assert read(long) is not read(long), "nor is a long one kept"


def test_a_key_that_is_no_issuer_of_anything_signs_nothing_for_another() -> None:
    forged = raw_jwt(document(), STRANGER)
    assert refusal(forged) == "claim failed V2 signature verification"
    assert now() > 0
