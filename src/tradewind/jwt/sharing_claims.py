"""Validate the exports and imports of an account, and subjects in any claim.

Owns these rules for the JWT of one account. It never looks at the JWTs of other accounts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from tradewind.jwt.claims import ActivationClaims, Export, Import, Latency
from tradewind.jwt.codec import JwtError, decode_as
from tradewind.subjects import collide, is_literal, is_subset

INFO_LENGTH_MAX = 8 * 1024
_KINDS = ("stream", "service")
_RESPONSE_TYPES = ("", "Singleton", "Stream", "Chunked")


def quoted(text: str) -> str:
    """A text of unknown origin on one line, in quotes."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else ascii(c)[1:-1] for c in escaped) + '"'


def subject_problems(subject: str) -> Iterator[str]:
    """Yield why a subject is not valid."""
    if not subject:
        yield "subject cannot be empty"
        return
    if " " in subject:
        yield f"subject {quoted(subject)} cannot have spaces"
    if subject.startswith(".") or subject.endswith("."):
        yield f"subject {quoted(subject)} cannot start or end with a `.`"
    if ".." in subject:
        yield f"subject {quoted(subject)} cannot contain consecutive `.`"


def info_problems(description: str, url: str) -> Iterator[str]:
    """Yield problems of texts for people: a description must be short, and a link must be valid."""
    if len(description.encode("utf-8", "surrogatepass")) > INFO_LENGTH_MAX:
        yield "Description is too long"
    if url:
        if len(url) > INFO_LENGTH_MAX:
            yield "Info URL is too long"
        try:
            parts = urlsplit(url)
            reason = "" if parts.scheme and parts.hostname else "no hostname or scheme"
        except ValueError as error:
            reason = str(error)
        if reason:
            yield f"error parsing info url: {reason}"


# ---------------------------------------------------------------- exports


def export_problems(exports: Sequence[Export]) -> Iterator[str]:
    """Yield problems of each export, and of exports of one kind that overlap."""
    for export in exports:
        yield from _export_problems(export)
    for kind in reversed(_KINDS):
        # Everything that is not a service counts with the streams, as elsewhere.
        subjects = [
            export.subject
            for export in exports
            if (export.type == "service") == (kind == "service")
        ]
        yield from _overlaps(kind, subjects)


def _overlaps(kind: str, subjects: list[str]) -> Iterator[str]:
    for index, wide in enumerate(subjects):
        if wide in subjects[:index]:
            continue
        for other, narrow in enumerate(subjects):
            if other != index and is_subset(narrow, wide):
                yield f"{kind} export subject {quoted(wide)} already exports {quoted(narrow)}"
                break


def _export_problems(export: Export) -> Iterator[str]:
    is_service = export.type == "service"
    if export.type not in _KINDS:
        yield f"invalid export type: {quoted(export.type or 'unknown')}"
    if is_service and export.response_type not in _RESPONSE_TYPES:
        yield f"invalid response type for service: {quoted(export.response_type)}"
    if export.type == "stream" and export.response_type:
        yield f"invalid response type for stream: {quoted(export.response_type)}"
    if export.service_latency is not None:
        if not is_service:
            yield "latency tracking only permitted for services"
        yield from _latency_problems(export.service_latency)
    if export.response_threshold < 0:
        yield "negative response threshold is invalid"
    if export.response_threshold > 0 and not is_service:
        yield "response threshold only valid for services"
    if export.allow_trace and not is_service:
        yield "AllowTrace only valid for service export"
    yield from subject_problems(export.subject)
    yield from _position_problems(export)
    yield from info_problems(export.description, export.info_url)


def _latency_problems(latency: Latency) -> Iterator[str]:
    sampling = latency.sampling
    if isinstance(sampling, str):
        if sampling.lower() != "headers":
            yield f"unknown sampling {quoted(sampling)}"
    elif sampling != 0 and not 1 <= sampling <= 100:
        yield "sampling percentage needs to be between 1-100"
    yield from subject_problems(latency.results)
    if not is_literal(latency.results):
        yield "results subject can not contain wildcards"


def _position_problems(export: Export) -> Iterator[str]:
    position, subject = export.account_token_position, export.subject
    if not position:
        return
    tokens = subject.split(".")
    if is_literal(subject):
        yield f"Account Token Position can only be used with wildcard subjects: {subject}"
    elif position > len(tokens):
        yield f"Account Token Position {position} exceeds length of subject '{subject}'"
    elif tokens[position - 1] != "*":
        yield (
            f"Account Token Position {position} matches '{tokens[position - 1]}' "
            f"but must match a * in: {subject}"
        )


# ---------------------------------------------------------------- imports


def import_problems(imports: Sequence[Import], account: str) -> Iterator[str]:
    """Yield problems of each import, and of services of one account that would receive the same
    requests.
    """
    seen: list[tuple[str, str]] = []
    for entry in imports:
        if entry.type == "service":
            local = _wildcards(entry.local_subject) or (entry.to and entry.subject) or entry.subject
            for other, exporter in seen:
                if exporter == entry.account and collide(local, other):
                    yield (
                        f"overlapping subject namespace for {quoted(local)} and {quoted(other)} "
                        f"in same account {quoted(entry.account)}"
                    )
            seen.append((local, entry.account))
        yield from _import_problems(entry, account)


def _import_problems(entry: Import, account: str) -> Iterator[str]:
    if entry.type not in _KINDS:
        yield f"invalid import type: {quoted(entry.type or 'unknown')}"
    if not entry.account:
        yield "account to import from is not specified"
    yield from subject_problems(entry.subject)
    if entry.local_subject:
        yield from _renaming_problems(entry.local_subject, entry.subject)
        if entry.to:
            yield "Local Subject replaces To"
    if entry.share and entry.type != "service":
        name = quoted(entry.subject)
        yield f"sharing information (for latency tracking) is only valid for services: {name}"
    if entry.allow_trace and entry.type != "stream":
        yield "AllowTrace only valid for stream import"
    if entry.token:
        yield from _token_problems(entry, account)


def _renaming_problems(local: str, remote: str) -> Iterator[str]:
    yield from subject_problems(local)
    if (local.split(".")[-1] == ">") != (remote.split(".")[-1] == ">"):
        yield "both, renaming subject and subject, need to end or not end in >"
    wildcards = remote.split(".").count("*")
    used = 0
    for part in local.split("."):
        if part == "*":
            used += 1
        elif part[:1] == "$" and part[1:].isdecimal():
            if int(part[1:][:9]) > wildcards:
                yield (
                    f"Reference ${part[1:]} in {quoted(local)} reference * in {quoted(remote)} "
                    "that do not exist"
                )
            else:
                used += 1
    if used != wildcards:
        yield "subject does not contain enough * or reference wildcards $[0-9]"


def _token_problems(entry: Import, account: str) -> Iterator[str]:
    try:
        activation = decode_as(ActivationClaims, entry.token)
    except JwtError:
        yield f"import {quoted(entry.subject)} contains an invalid activation token"
        return
    fields = activation.nats
    if entry.account not in (activation.iss, fields.issuer_account):
        yield f"activation token doesn't match account for import {quoted(entry.subject)}"
    if activation.sub != account:
        name = quoted(entry.subject)
        yield f"activation token doesn't match account it is being included in, {name}"
    if fields.kind != entry.type:
        yield (
            f"mismatch between token import type {fields.kind or 'unknown'} and type of import "
            f"{entry.type or 'unknown'}"
        )
    subject = entry.to if entry.type == "service" and entry.to else entry.subject
    if not is_subset(subject, fields.subject):
        yield (
            f"activation token import subject {quoted(fields.subject)} doesn't match import "
            f"{quoted(entry.subject)}"
        )


def _wildcards(renamed: str) -> str:
    """A local subject with its references replaced by the wildcards that they stand for."""
    return ".".join(
        "*" if token[:1] == "$" and token[1:].isdecimal() else token for token in renamed.split(".")
    )
