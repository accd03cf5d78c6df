"""`tradewind server check`: health checks for monitoring systems.

Owns the flags and thresholds; the rules are in `check_rules.py`, formats and exit codes in
`check_result.py`. An unreachable server is a critical result, not an error of the command.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from tradewind.cli.frame.failures import EXIT_USAGE, CommandError
from tradewind.cli.frame.frame import CommandApp, Option
from tradewind.cli.frame.output import line
from tradewind.cli.frame.text_formats import parse_duration_ns
from tradewind.cli.servers import check_rules as rules
from tradewind.cli.servers.check_result import FORMATS, CheckResult
from tradewind.errors import TradewindError

app = CommandApp("Checks for monitoring systems; exit code 0, 1 warning, 2 critical, 3 unknown")

FormatFlag = Annotated[str, Option("--format", help="Output format", metavar="|".join(FORMATS))]
NamespaceFlag = Annotated[str, Option("--namespace", help="Prefix of Prometheus metrics")]
OutfileFlag = Annotated[
    str, Option("--outfile", help="Write the result to this file", metavar="FILE")
]
StreamFlag = Annotated[str, Option("--stream", help="Stream name")]
DEFAULT_FORMAT = "nagios"
DEFAULT_NAMESPACE = "nats_server_check"


def _duration(flag: str, what: str) -> object:
    return Option(f"--{flag}", help=what, metavar="DURATION")


def _seconds(text: str, flag: str) -> float | None:
    return parse_duration_ns(text, flag) / 1e9 if text else None


def _finish(
    result: CheckResult, check: Callable[[CheckResult], None], form: str, space: str, outfile: str
) -> int:
    """Run a check, print its result, and give its exit code."""
    if form not in FORMATS:
        raise CommandError(
            f"--format: one of {', '.join(FORMATS)}, not {form!r}", exit_code=EXIT_USAGE
        )
    try:
        check(result)
    except TradewindError as error:
        result.critical(str(error))
    except OSError as error:
        result.critical(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    text = result.render(form, space)
    if outfile:
        Path(outfile).write_text(text + "\n")
    else:
        line(text)
    return int(result.status)


@app.command("connection", aliases=("conn",))
def connection(
    connect_warn: Annotated[str, _duration("connect-warn", "Warning time to connect")] = "500ms",
    connect_critical: Annotated[
        str, _duration("connect-critical", "Critical time to connect")
    ] = "1s",
    rtt_warn: Annotated[str, _duration("rtt-warn", "Warning round-trip time")] = "500ms",
    rtt_critical: Annotated[str, _duration("rtt-critical", "Critical round-trip time")] = "1s",
    req_warn: Annotated[str, _duration("req-warn", "Warning request time")] = "500ms",
    req_critical: Annotated[str, _duration("req-critical", "Critical request time")] = "1s",
    form: FormatFlag = DEFAULT_FORMAT,
    namespace: NamespaceFlag = DEFAULT_NAMESPACE,
    outfile: OutfileFlag = "",
) -> int:
    """Check that a server accepts connections, and how fast."""
    limits = rules.ConnectionLimits(
        connect=(
            _seconds(connect_warn, "--connect-warn"),
            _seconds(connect_critical, "--connect-critical"),
        ),
        rtt=(_seconds(rtt_warn, "--rtt-warn"), _seconds(rtt_critical, "--rtt-critical")),
        request=(_seconds(req_warn, "--req-warn"), _seconds(req_critical, "--req-critical")),
    )
    result = CheckResult("connection", "Connection")
    return _finish(
        result, lambda found: rules.check_connection(found, limits), form, namespace, outfile
    )


@app.command("stream")
def stream(
    stream: StreamFlag,
    lag_critical: Annotated[int, Option("--lag-critical", min=-1, help="Critical source lag")] = -1,
    seen_critical: Annotated[
        str, _duration("seen-critical", "Critical time since a source was last seen")
    ] = "",
    min_sources: Annotated[
        int, Option("--min-sources", min=-1, help="Minimum number of sources")
    ] = -1,
    max_sources: Annotated[
        int, Option("--max-sources", min=-1, help="Maximum number of sources")
    ] = -1,
    peer_expect: Annotated[
        int, Option("--peer-expect", min=-1, help="Expected number of replicas")
    ] = -1,
    peer_lag_critical: Annotated[
        int, Option("--peer-lag-critical", min=-1, help="Critical peer lag")
    ] = -1,
    peer_seen_critical: Annotated[
        str, _duration("peer-seen-critical", "Critical time since a peer was last seen")
    ] = "",
    msgs_warn: Annotated[
        int, Option("--msgs-warn", min=-1, help="Warn below this many messages")
    ] = -1,
    msgs_critical: Annotated[
        int, Option("--msgs-critical", min=-1, help="Critical below this many messages")
    ] = -1,
    subjects_warn: Annotated[
        int, Option("--subjects-warn", min=-1, help="Warn above this many subjects")
    ] = -1,
    subjects_critical: Annotated[
        int, Option("--subjects-critical", min=-1, help="Critical above this many subjects")
    ] = -1,
    form: FormatFlag = DEFAULT_FORMAT,
    namespace: NamespaceFlag = DEFAULT_NAMESPACE,
    outfile: OutfileFlag = "",
) -> int:
    """Check the messages, sources and replicas of a stream."""
    limits = rules.StreamLimits(
        lag=_limit(lag_critical),
        seen=_seconds(seen_critical, "--seen-critical"),
        sources=(_limit(min_sources), _limit(max_sources)),
        peers=_limit(peer_expect),
        peer_lag=_limit(peer_lag_critical),
        peer_seen=_seconds(peer_seen_critical, "--peer-seen-critical"),
        messages=(_limit(msgs_warn), _limit(msgs_critical)),
        subjects=(_limit(subjects_warn), _limit(subjects_critical)),
    )
    result = CheckResult("stream", stream)
    return _finish(
        result, lambda found: rules.check_stream(found, stream, limits), form, namespace, outfile
    )


@app.command("consumer")
def consumer(
    stream: StreamFlag,
    consumer: Annotated[str, Option("--consumer", help="Consumer name")],
    outstanding_ack_critical: Annotated[
        int,
        Option(
            "--outstanding-ack-critical", min=-1, help="Critical number of unacknowledged messages"
        ),
    ] = -1,
    waiting_critical: Annotated[
        int, Option("--waiting-critical", min=-1, help="Critical number of waiting pulls")
    ] = -1,
    unprocessed_critical: Annotated[
        int,
        Option("--unprocessed-critical", min=-1, help="Critical number of unprocessed messages"),
    ] = -1,
    last_delivery_critical: Annotated[
        str, _duration("last-delivery-critical", "Critical time since the last delivery")
    ] = "",
    last_ack_critical: Annotated[
        str, _duration("last-ack-critical", "Critical time since the last acknowledgement")
    ] = "",
    redelivery_critical: Annotated[
        int, Option("--redelivery-critical", min=-1, help="Critical number of redelivered messages")
    ] = -1,
    form: FormatFlag = DEFAULT_FORMAT,
    namespace: NamespaceFlag = DEFAULT_NAMESPACE,
    outfile: OutfileFlag = "",
) -> int:
    """Check that a consumer keeps up."""
    limits = rules.ConsumerCheckLimits(
        unacknowledged=_limit(outstanding_ack_critical),
        waiting=_limit(waiting_critical),
        unprocessed=_limit(unprocessed_critical),
        redelivered=_limit(redelivery_critical),
        last_delivery=_seconds(last_delivery_critical, "--last-delivery-critical"),
        last_ack=_seconds(last_ack_critical, "--last-ack-critical"),
    )
    result = CheckResult("consumer", f"{stream}_{consumer}")
    return _finish(
        result,
        lambda found: rules.check_consumer(found, stream, consumer, limits),
        form,
        namespace,
        outfile,
    )


@app.command("message", aliases=("msg",))
def message(
    stream: StreamFlag,
    subject: Annotated[
        str, Option("--subject", help="Check the last message of this subject")
    ] = ">",
    age_warn: Annotated[str, _duration("age-warn", "Warning age of the message")] = "",
    age_critical: Annotated[str, _duration("age-critical", "Critical age of the message")] = "",
    content: Annotated[
        str,
        Option("--content", help="Regular expression that the body must match", metavar="REGEX"),
    ] = "",
    body_timestamp: Annotated[
        bool, Option("--body-timestamp", help="Read the message's time from its body (Unix time)")
    ] = False,
    form: FormatFlag = DEFAULT_FORMAT,
    namespace: NamespaceFlag = DEFAULT_NAMESPACE,
    outfile: OutfileFlag = "",
) -> int:
    """Check the age and content of the last message of a subject."""
    age = (_seconds(age_warn, "--age-warn"), _seconds(age_critical, "--age-critical"))
    return _finish(
        CheckResult("message", "Stream Message"),
        lambda found: rules.check_message(
            found, stream, subject, age, content, body_is_time=body_timestamp
        ),
        form,
        namespace,
        outfile,
    )


@app.command("jetstream", aliases=("js",))
def jetstream(
    mem_warn: Annotated[
        int, Option("--mem-warn", min=-1, help="Warning memory usage in percent")
    ] = 75,
    mem_critical: Annotated[
        int, Option("--mem-critical", min=-1, help="Critical memory usage in percent")
    ] = 90,
    store_warn: Annotated[
        int, Option("--store-warn", min=-1, help="Warning storage usage in percent")
    ] = 75,
    store_critical: Annotated[
        int, Option("--store-critical", min=-1, help="Critical storage usage in percent")
    ] = 90,
    streams_warn: Annotated[
        int, Option("--streams-warn", min=-1, help="Warning stream usage in percent")
    ] = -1,
    streams_critical: Annotated[
        int, Option("--streams-critical", min=-1, help="Critical stream usage in percent")
    ] = -1,
    consumers_warn: Annotated[
        int, Option("--consumers-warn", min=-1, help="Warning consumer usage in percent")
    ] = -1,
    consumers_critical: Annotated[
        int, Option("--consumers-critical", min=-1, help="Critical consumer usage in percent")
    ] = -1,
    form: FormatFlag = DEFAULT_FORMAT,
    namespace: NamespaceFlag = DEFAULT_NAMESPACE,
    outfile: OutfileFlag = "",
) -> int:
    """Check the JetStream usage of the account."""
    limits = {
        "memory": (_limit(mem_warn), _limit(mem_critical)),
        "storage": (_limit(store_warn), _limit(store_critical)),
        "streams": (_limit(streams_warn), _limit(streams_critical)),
        "consumers": (_limit(consumers_warn), _limit(consumers_critical)),
    }
    result = CheckResult("jetstream", "JetStream")
    return _finish(
        result, lambda found: rules.check_jetstream(found, limits), form, namespace, outfile
    )


@app.command("server")
def server(
    name: Annotated[str, Option("--name", help="Name of the server")],
    cpu_warn: Annotated[
        int, Option("--cpu-warn", min=-1, help="Warning CPU usage in percent")
    ] = -1,
    cpu_critical: Annotated[
        int, Option("--cpu-critical", min=-1, help="Critical CPU usage in percent")
    ] = -1,
    mem_warn: Annotated[
        int, Option("--mem-warn", min=-1, help="Warning memory usage in bytes")
    ] = -1,
    mem_critical: Annotated[
        int, Option("--mem-critical", min=-1, help="Critical memory usage in bytes")
    ] = -1,
    conn_warn: Annotated[
        int, Option("--conn-warn", min=-1, help="Warning number of connections")
    ] = -1,
    conn_critical: Annotated[
        int, Option("--conn-critical", min=-1, help="Critical number of connections")
    ] = -1,
    subs_warn: Annotated[
        int, Option("--subs-warn", min=-1, help="Warning number of subscriptions")
    ] = -1,
    subs_critical: Annotated[
        int, Option("--subs-critical", min=-1, help="Critical number of subscriptions")
    ] = -1,
    uptime_warn: Annotated[str, _duration("uptime-warn", "Warning minimum uptime")] = "",
    uptime_critical: Annotated[str, _duration("uptime-critical", "Critical minimum uptime")] = "",
    auth_required: Annotated[
        bool, Option("--auth-required", help="Require authentication")
    ] = False,
    tls_required: Annotated[bool, Option("--tls-required", help="Require TLS")] = False,
    js_required: Annotated[bool, Option("--js-required", help="Require JetStream")] = False,
    form: FormatFlag = DEFAULT_FORMAT,
    namespace: NamespaceFlag = DEFAULT_NAMESPACE,
    outfile: OutfileFlag = "",
) -> int:
    """Check the health of a server; requires the system account."""
    limits = rules.ServerCheckLimits(
        cpu=(_limit(cpu_warn), _limit(cpu_critical)),
        memory=(_limit(mem_warn), _limit(mem_critical)),
        connections=(_limit(conn_warn), _limit(conn_critical)),
        subscriptions=(_limit(subs_warn), _limit(subs_critical)),
        uptime=(
            _seconds(uptime_warn, "--uptime-warn"),
            _seconds(uptime_critical, "--uptime-critical"),
        ),
        auth=auth_required,
        tls=tls_required,
        jetstream=js_required,
    )
    result = CheckResult("server", name)
    return _finish(
        result, lambda found: rules.check_server(found, name, limits), form, namespace, outfile
    )


@app.command("kv")
def kv(
    bucket: Annotated[str, Option("--bucket", help="Bucket name")],
    values_critical: Annotated[
        int, Option("--values-critical", min=-1, help="Critical number of values")
    ] = -1,
    values_warn: Annotated[
        int, Option("--values-warn", min=-1, help="Warning number of values")
    ] = -1,
    key: Annotated[str, Option("--key", help="Key that must exist")] = "",
    form: FormatFlag = DEFAULT_FORMAT,
    namespace: NamespaceFlag = DEFAULT_NAMESPACE,
    outfile: OutfileFlag = "",
) -> int:
    """Check a key-value bucket."""
    limits = (_limit(values_warn), _limit(values_critical))
    return _finish(
        CheckResult("kv", bucket),
        lambda found: rules.check_kv(found, bucket, key, limits),
        form,
        namespace,
        outfile,
    )


@app.command("request")
def request(
    subject: Annotated[str, Option("--subject", help="Request subject")],
    payload: Annotated[str, Option("--payload", help="Request body")] = "",
    match_payload: Annotated[
        str,
        Option(
            "--match-payload", help="Regular expression that the reply must match", metavar="REGEX"
        ),
    ] = "",
    response_warn: Annotated[str, _duration("response-warn", "Warning response time")] = "",
    response_critical: Annotated[
        str, _duration("response-critical", "Critical response time")
    ] = "",
    form: FormatFlag = DEFAULT_FORMAT,
    namespace: NamespaceFlag = DEFAULT_NAMESPACE,
    outfile: OutfileFlag = "",
) -> int:
    """Check that a service replies, how fast, and with what."""
    limits = (
        _seconds(response_warn, "--response-warn"),
        _seconds(response_critical, "--response-critical"),
    )
    return _finish(
        CheckResult("request", "Request"),
        lambda found: rules.check_request(found, subject, payload, match_payload, limits),
        form,
        namespace,
        outfile,
    )


@app.command("credential")
def credential(
    credential: Annotated[str, Option("--credential", help="File with credentials")],
    validity_warn: Annotated[str, _duration("validity-warn", "Warning remaining validity")] = "",
    validity_critical: Annotated[
        str, _duration("validity-critical", "Critical remaining validity")
    ] = "",
    require_expiry: Annotated[
        bool, Option("--require-expiry/--no-require-expiry", help="Require an expiry date")
    ] = True,
    form: FormatFlag = DEFAULT_FORMAT,
    namespace: NamespaceFlag = DEFAULT_NAMESPACE,
    outfile: OutfileFlag = "",
) -> int:
    """Check the expiry of a credentials file."""
    limits = (
        _seconds(validity_warn, "--validity-warn"),
        _seconds(validity_critical, "--validity-critical"),
    )
    return _finish(
        CheckResult("credential", "Credential"),
        lambda found: rules.check_credential(found, credential, limits, must_expire=require_expiry),
        form,
        namespace,
        outfile,
    )


def _limit(value: int) -> int | None:
    return None if value < 0 else value
