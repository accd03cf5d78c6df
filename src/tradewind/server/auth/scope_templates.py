"""Templates of scoped signing keys: `{{...}}` in subjects, filled in for one user.

Owns the template functions and the handling of missing values. It never decides about a login: for
a template that cannot be filled in it returns None, and the gate refuses the login.

    {{name()}}  {{subject()}}  {{account-name()}}  {{account-subject()}}
    {{tag(key)}}  {{account-tag(key)}}

A tag with several values yields every combination. In `allow`, an entry without a value is omitted,
and if no entry is left, nothing is allowed. In `deny`, omitting an entry would permit what should
be denied, so the user is refused.
"""

from __future__ import annotations

import re
from itertools import product

from msgspec.structs import replace

from tradewind.jwt.claims import AccountClaims, ScopeTemplate, SubjectClaims, UserClaims
from tradewind.route.function_calls import braced_parts
from tradewind.subjects import is_valid_subject

SUBJECTS_MAX = 4096
# The limit for all subjects of a list together.
CHARACTERS_MAX = 1 << 20
# Each of these searches all tags of the user.
PLACES_MAX = 256
_TAG = re.compile(r"(account-)?tag\((.*)\)")


class _NoSuchOperationError(Exception):
    """A template has an operation that does not exist."""


def fill_template(
    template: ScopeTemplate, user: UserClaims, account: AccountClaims
) -> ScopeTemplate | None:
    """The template with the values of this user; None if it cannot be used for this user."""
    try:
        publish = _rules(template.pub, user, account)
        subscribe = _rules(template.sub, user, account)
    except _NoSuchOperationError:
        return None
    if publish is None or subscribe is None:
        return None
    return replace(template, pub=publish, sub=subscribe)


def _rules(rules: SubjectClaims, user: UserClaims, account: AccountClaims) -> SubjectClaims | None:
    allow = _expanded_list(rules.allow or [], user, account)
    deny = _expanded_list(rules.deny or [], user, account)
    if None in deny:
        return None
    allowed = [subject for subject in allow if subject is not None]
    denied = [subject for subject in deny if subject is not None]
    if rules.allow and not allowed:
        denied.append(">")
    return SubjectClaims(allow=allowed, deny=denied)


def _expanded_list(texts: list[str], user: UserClaims, account: AccountClaims) -> list[str | None]:
    """All subjects of a list, with None for each text that is not a subject.

    A list with a template in it cannot name queue groups, as in nats-server: an entry with a blank
    is not a subject.
    """
    pieces = [braced_parts(text) for text in texts]
    place_count = sum(len(parts) // 2 for parts in pieces)
    if not place_count:
        return list(texts)
    if place_count > PLACES_MAX:
        raise _NoSuchOperationError
    subjects: list[str | None] = []
    characters = 0
    for parts in pieces:
        expanded = _expanded(parts, user, account)
        characters += sum(map(len, expanded))
        subjects += [subject if is_valid_subject(subject) else None for subject in expanded]
        if not expanded:
            subjects.append(None)
        if len(subjects) > SUBJECTS_MAX or characters > CHARACTERS_MAX:
            raise _NoSuchOperationError
    return subjects


def _expanded(pieces: list[str], user: UserClaims, account: AccountClaims) -> list[str]:
    """Every text that a template stands for; empty if a tag is missing.

    `pieces` alternate between plain text and operations.
    """
    values = [_values(operation.strip(), user, account) for operation in pieces[1::2]]
    count = 1
    longest = sum(map(len, pieces[::2]))
    for choices in values:
        count *= len(choices)
        longest += max(map(len, choices), default=0)
    if count > SUBJECTS_MAX or count * longest > CHARACTERS_MAX:
        raise _NoSuchOperationError
    return [
        pieces[0] + "".join(a + b for a, b in zip(chosen, pieces[2::2], strict=True))
        for chosen in product(*values)
    ]


def _values(operation: str, user: UserClaims, account: AccountClaims) -> list[str]:
    name = operation.lower()
    fixed = {
        "name()": user.name,
        "subject()": user.sub,
        "account-name()": account.name,
        "account-subject()": account.sub,
    }
    if name in fixed:
        return [fixed[name]]
    match = _TAG.fullmatch(name)
    if match is None:
        raise _NoSuchOperationError
    tags = (account.nats.tags if match[1] else user.nats.tags) or []
    start = f"{match[2].strip()}:"
    return [tag[len(start) :] for tag in tags if tag.startswith(start)]
