"""JWTs of operators, accounts and users: types, signatures, rules and files.

A leaf: it knows keys and subjects, and neither servers nor clients. `claims` has the types, `codec`
signs and verifies, `rules` says what is wrong with claims, `files` is how they lie on disk.
"""

from tradewind.jwt.claims import AccountClaims, Claims, OperatorClaims, UserClaims
from tradewind.jwt.codec import JwtError, decode, decode_as, encode

__all__ = [
    "AccountClaims",
    "Claims",
    "JwtError",
    "OperatorClaims",
    "UserClaims",
    "decode",
    "decode_as",
    "encode",
]
