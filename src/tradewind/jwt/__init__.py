"""JWTs of operators, accounts and users: types, signatures, rules and files.

This package depends on keys and subjects only, never on servers or clients. `claims` has the types,
`codec` signs and verifies, `claim_rules` validates claims, `claim_files` defines the file formats.
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
