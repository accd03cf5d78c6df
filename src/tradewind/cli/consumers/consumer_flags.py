"""The flags that describe a consumer, shared by add, edit and copy.

Owns the flags and applying them to a configuration: settings without a flag never change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec

from tradewind.api.consumer_types import ConsumerConfig
from tradewind.api.dead_letter_rules import PREFIX, STREAM_KEY
from tradewind.api.nak_policy import BACKOFF_KEY, DELAY_KEY, NakPolicyError, nak_policy_of
from tradewind.api.order_rules import (
    IN_FLIGHT_KEY,
    IN_FLIGHT_MAX,
    ORDER_BY_KEY,
    OrderError,
    order_of,
)
from tradewind.api.times import format_time
from tradewind.cli.frame.choices import OneOf
from tradewind.cli.frame.config_files import config_of
from tradewind.cli.frame.failures import EXIT_USAGE, CommandError
from tradewind.cli.frame.frame import Option
from tradewind.cli.frame.text_formats import parse_duration_ns, parse_moment_ns
from tradewind.cli.streams.stream_flags import (
    Number,
    Switch,
    Text,
    Texts,
    members_of,
    parse_metadata,
    split_subjects,
)

ACK_POLICIES: Final = OneOf("none", "all", "explicit", "flow_control")
REPLAY_POLICIES: Final = OneOf("instant", "original")


@dataclass(frozen=True)
class ConsumerFlags:
    """Flags of a consumer; None means not given. Fields are named as in the configuration."""

    ack_policy: Annotated[
        Text, Option("--ack", click_type=ACK_POLICIES, help="Acknowledgement policy")
    ] = None
    rate_limit_bps: Annotated[
        Number, Option("--bps", min=0, help="Rate limit in bits per second")
    ] = None
    backoff: Annotated[
        Text,
        Option("--backoff", click_type=OneOf("linear", "none"), help="Backoff between deliveries"),
    ] = None
    backoff_steps: Annotated[int, Option("--backoff-steps", min=1, max=100)] = 10
    backoff_min: Annotated[str, Option("--backoff-min", metavar="DURATION")] = "1m"
    backoff_max: Annotated[str, Option("--backoff-max", metavar="DURATION")] = "20m"
    dead_letters: Annotated[
        Text,
        Option(
            "--dead-letters",
            metavar="STREAM",
            help="Stream for dead letters; an empty name for none",
        ),
    ] = None
    deliver: Annotated[
        Text,
        Option(
            "--deliver",
            metavar="all|new|last|subject|1h|SEQUENCE",
            help="Where to start; `subject`: last message of each subject",
        ),
    ] = None
    deliver_group: Annotated[
        Text, Option("--deliver-group", help="Queue group of a push consumer")
    ] = None
    description: Annotated[Text, Option("--description", help="Description")] = None
    ephemeral: Annotated[bool, Option("--ephemeral", help="Ephemeral: remove when unused")] = False
    filter_subjects: Annotated[
        Texts, Option("--filter", metavar="SUBJECTS", help="Filter subjects")
    ] = None
    flow_control: Annotated[Switch, Option("--flow-control", help="Push consumers only")] = None
    idle_heartbeat: Annotated[
        Text,
        Option("--heartbeat", metavar="DURATION", help="Heartbeat of a push consumer; -1 for none"),
    ] = None
    headers_only: Annotated[
        Switch, Option("--headers-only/--no-headers-only", help="Deliver headers only")
    ] = None
    max_deliver: Annotated[Number, Option("--max-deliver", min=-1, metavar="TRIES")] = None
    max_ack_pending: Annotated[
        Number,
        Option(
            "--max-pending", "--max-outstanding", min=-1, help="Maximum unacknowledged messages"
        ),
    ] = None
    max_waiting: Annotated[Number, Option("--max-waiting", min=0, metavar="PULLS")] = None
    max_batch: Annotated[Number, Option("--max-pull-batch", min=0, metavar="MESSAGES")] = None
    max_expires: Annotated[Text, Option("--max-pull-expire", metavar="DURATION")] = None
    max_bytes: Annotated[Text, Option("--max-pull-bytes", metavar="SIZE")] = None
    nak_delay: Annotated[
        Text,
        Option(
            "--nak-delay",
            metavar="RULE|none",
            help="Wait after a NAK: 5s, 1s,10s,1m or exponential 1s x2 max 5m jitter 10%",
        ),
    ] = None
    nak_delay_for: Annotated[
        Texts,
        Option("--nak-delay-for", metavar="CLASS=RULE", help="Wait after a NAK with this reason"),
    ] = None
    nak_backoff: Annotated[
        Switch, Option("--nak-backoff/--no-nak-backoff", help="Use the backoff after a NAK, too")
    ] = None
    order_by: Annotated[
        Text,
        Option(
            "--order-by",
            metavar="subject|token:N|header:NAME",
            help="Deliver messages of one key in order, one at a time",
        ),
    ] = None
    order_in_flight: Annotated[
        Number,
        Option(
            "--order-in-flight",
            min=1,
            max=IN_FLIGHT_MAX,
            metavar="N",
            help="Messages of one key in flight (default: 1)",
        ),
    ] = None
    pull: Annotated[bool, Option("--pull", help="Pull consumer (default)")] = False
    replay_policy: Annotated[Text, Option("--replay", click_type=REPLAY_POLICIES)] = None
    sample: Annotated[
        Number,
        Option(
            "--sample",
            min=0,
            max=100,
            metavar="PERCENT",
            help="Percentage of acknowledgements to sample",
        ),
    ] = None
    deliver_subject: Annotated[
        Text, Option("--target", metavar="SUBJECT", help="Delivery subject of a push consumer")
    ] = None
    ack_wait: Annotated[
        Text, Option("--wait", metavar="DURATION", help="Time to wait for an acknowledgement")
    ] = None
    inactive_threshold: Annotated[
        Text,
        Option(
            "--inactive-threshold", metavar="DURATION", help="Remove after this long without use"
        ),
    ] = None
    mem_storage: Annotated[Switch, Option("--memory", help="Keep the state in memory only")] = None
    num_replicas: Annotated[
        Number, Option("--replicas", min=0, max=5, help="Number of replicas")
    ] = None
    metadata: Annotated[Texts, Option("--metadata", metavar="KEY=VALUE")] = None
    pause_until: Annotated[
        Text, Option("--pause", metavar="DURATION|TIME", help="Create paused until this time")
    ] = None
    pinned_groups: Annotated[Texts, Option("--pinned-groups", metavar="GROUPS")] = None
    pinned_ttl: Annotated[Text, Option("--pinned-ttl", metavar="DURATION")] = None
    overflow_groups: Annotated[Texts, Option("--overflow-groups", metavar="GROUPS")] = None
    prioritized_groups: Annotated[Texts, Option("--prioritized-groups", metavar="GROUPS")] = None


# Flags that do not simply hold the value of the member of their name.
_OTHERS: Final = ("backoff", "filter_subjects", "metadata", "pause_until")
_GROUPS: Final = {
    "pinned_groups": "pinned_client",
    "overflow_groups": "overflow",
    "prioritized_groups": "prioritized",
}


def apply_flags(config: ConsumerConfig, flags: ConsumerFlags) -> ConsumerConfig:
    """The configuration with what was given changed."""
    if flags.pull and flags.deliver_subject:
        raise CommandError("--pull and --target: use only one of them", exit_code=EXIT_USAGE)
    changes = members_of(flags, ConsumerConfig, others=_OTHERS)
    if "max_bytes" in changes:  # -1 means no limit to nats, which is 0 here
        changes["max_bytes"] = max(changes["max_bytes"], 0)
    if flags.sample is not None:
        changes["sample_freq"] = f"{flags.sample}%"
    if flags.filter_subjects is not None:
        changes |= filters(split_subjects(flags.filter_subjects))
    if flags.deliver is not None:
        changes |= start_of(flags.deliver)
    if flags.backoff is not None:
        changes["backoff"] = _backoff(flags)
    if flags.pause_until is not None:
        changes["pause_until"] = format_time(parse_moment_ns(flags.pause_until, "--pause"))
    if flags.metadata is not None:
        changes["metadata"] = dict(config.metadata) | parse_metadata(flags.metadata)
    if flags.dead_letters is not None:
        kept = changes.get("metadata", dict(config.metadata))
        if flags.dead_letters:
            changes["metadata"] = kept | {STREAM_KEY: flags.dead_letters}
        else:
            changes["metadata"] = {
                key: value for key, value in kept.items() if not key.startswith(PREFIX)
            }
    if (rules := _nak_rules(flags)) is not None:
        metadata = changes.get("metadata", dict(config.metadata)) | rules
        changes["metadata"] = {
            key: value for key, value in metadata.items() if rules.get(key) != "none"
        }
    if order := _order_rules(flags):
        changes["metadata"] = changes.get("metadata", dict(config.metadata)) | order
    changes |= _priority(flags)
    return config_of(msgspec.to_builtins(config) | changes, ConsumerConfig, "flags")


def _nak_rules(flags: ConsumerFlags) -> dict[str, str] | None:
    """The metadata of these flags, "none" for a key to be removed; None: nothing changes."""
    rules: dict[str, str] = {}
    if flags.nak_delay is not None:
        rules[DELAY_KEY] = flags.nak_delay
    for text in flags.nak_delay_for or ():
        name, equals, rule = text.partition("=")
        if not equals:
            raise CommandError(
                f"--nak-delay-for: CLASS=RULE as in busy=10s, not {text!r}", exit_code=EXIT_USAGE
            )
        rules[f"{DELAY_KEY}.{name}"] = rule
    if flags.nak_backoff is not None:
        rules[BACKOFF_KEY] = "true" if flags.nak_backoff else "none"
    try:
        nak_policy_of({key: rule for key, rule in rules.items() if rule != "none"})
    except NakPolicyError as error:
        raise CommandError(str(error), exit_code=EXIT_USAGE) from None
    return rules or None


def _order_rules(flags: ConsumerFlags) -> dict[str, str]:
    """The metadata of the flags about order per key."""
    rules: dict[str, str] = {}
    if flags.order_by is not None:
        rules[ORDER_BY_KEY] = flags.order_by
        try:
            order_of(rules)
        except OrderError as error:
            raise CommandError(f"--order-by: {error}", exit_code=EXIT_USAGE) from None
    if flags.order_in_flight is not None:
        rules[IN_FLIGHT_KEY] = str(flags.order_in_flight)
    return rules


def filters(subjects: list[str]) -> dict[str, Any]:
    """The members for these filters; one and several are different members."""
    if len(subjects) == 1:
        return {"filter_subject": subjects[0], "filter_subjects": []}
    return {"filter_subject": "", "filter_subjects": subjects}


def start_of(text: str) -> dict[str, Any]:
    """The members for a start: all, new, last, subject, a duration, a time or a sequence."""
    policies = {
        "all": "all",
        "first": "all",
        "new": "new",
        "next": "new",
        "last": "last",
        "subject": "last_per_subject",
        "last_per_subject": "last_per_subject",
    }
    if text in policies:
        return {"deliver_policy": policies[text]}
    if text.isdigit():
        return {"deliver_policy": "by_start_sequence", "opt_start_seq": int(text)}
    try:
        time_ns = parse_moment_ns(text, "--deliver", ago=True)
    except CommandError:
        raise CommandError(
            f"--deliver: all, new, last, subject, 1h, a time or a sequence, not {text!r}",
            exit_code=EXIT_USAGE,
        ) from None
    return {"deliver_policy": "by_start_time", "opt_start_time": format_time(time_ns)}


def _backoff(flags: ConsumerFlags) -> list[int]:
    if flags.backoff == "none":
        return []
    return linear_backoff(
        flags.backoff_steps,
        parse_duration_ns(flags.backoff_min, "--backoff-min"),
        parse_duration_ns(flags.backoff_max, "--backoff-max"),
    )


def linear_backoff(steps: int, shortest_ns: int, longest_ns: int) -> list[int]:
    """Times that grow evenly from the shortest to the longest."""
    if not 0 < shortest_ns <= longest_ns:
        raise CommandError(
            "--backoff-min: must be more than 0 and at most --backoff-max", exit_code=EXIT_USAGE
        )
    if steps == 1:
        return [shortest_ns]
    return [shortest_ns + (longest_ns - shortest_ns) * step // (steps - 1) for step in range(steps)]


def _priority(flags: ConsumerFlags) -> dict[str, Any]:
    given = [name for name in _GROUPS if getattr(flags, name) is not None]
    if len(given) > 1:
        names = " and ".join(f"--{name.replace('_', '-')}" for name in given)
        raise CommandError(f"{names}: use only one of them", exit_code=EXIT_USAGE)
    changes: dict[str, Any] = {}
    if given:
        changes["priority_groups"] = split_subjects(getattr(flags, given[0]))
        changes["priority_policy"] = _GROUPS[given[0]]
    if flags.pinned_ttl is not None:
        changes["priority_timeout"] = parse_duration_ns(flags.pinned_ttl, "--pinned-ttl")
    return changes
