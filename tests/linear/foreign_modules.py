"""The modules that read foreign input, and the tests of those that the harness does not feed.

`LISTED` are those that have no other mark by which they could be found. A module of `ELSEWHERE`
parses only input that Tradewind has written, or input that an entry point has bounded.
"""

from __future__ import annotations

# Compiled, or without anything but methods of texts.
LISTED = {
    "wire.parser",
    "wire.leaf_parser",
    "wire.websocket",
    "client.core.protocol",
    "client.core.headers",
    "client.core.first_lines",
    "client.kv.entries",
    "monitor.http",
    "monitor.parameters",
    "monitor.page_options",
    "route.mapping",
    "route.remapping",
    "route.function_calls",
    "route.translation",
    "server.config.grammar",
    "server.links.proxy_header",
    "store.format.message_ttl",
    "stream.header_fields",
    "api.timings",
    "api.source_rules",
    "api.stream_rules",
    "api.consumer_rules",
    "api.subject_tree",
    "api.chain_rules",
    "subjects",
}

_JSON = "one call of the JSON library on a body of bounded size, whose errors are caught"
_OWN_ANSWER = "an answer of the server that the dashboard is connected to, read by the JSON library"
_KERNEL = "the addresses of this machine, which its kernel tells"
_CONFIGURED = "a text of the configuration or the command line, which the operator writes"
_SMALL = "a pattern of bounded length, matched at a given place"

ELSEWHERE = {
    "backups.account_api": _JSON,
    "backups.backup_places": _CONFIGURED,
    "backups.repository_locks": _JSON,
    "broker.admission": _JSON,
    "broker.broker": _JSON,
    "broker.request_info": "a field that this server has written itself",
    "broker.room": "the address of a socket, which the kernel has written",
    "extra_packages": "the words of an installed package, which is trusted",
    "server.lifecycle.default_name": "the name of the host, which the local system gives",
    "client.core.contexts": "a file of the local user",
    "client.running.payload_codecs": _JSON,
    "client.running.retries": "durations and names that a program gives its own handlers",
    "client.schema_bucket": _SMALL,
    "client.services.discovery": _JSON,
    "client.services.services": "names that a program gives its own service",
    "client.streams.counter_values": _JSON,
    "client.streams.fast_batches": _JSON,
    "consumer.pull_requests": _JSON,
    "dashboard.data.advisories": _OWN_ANSWER,
    "dashboard.data.archives": _OWN_ANSWER,
    "dashboard.data.backup_data": _OWN_ANSWER,
    "dashboard.data.catalog": _OWN_ANSWER,
    "dashboard.data.connection_data": _OWN_ANSWER,
    "dashboard.data.load_and_usage": _OWN_ANSWER,
    "dashboard.data.message_data": _OWN_ANSWER,
    "dashboard.data.message_export": "messages that are written, not read",
    "dashboard.data.problems": "the error of a server; its pattern stops at each quote",
    "dashboard.data.sql_data": "answers of the SQL service of the same user",
    "dashboard.data.rights": _OWN_ANSWER,
    "dashboard.views.editing": _OWN_ANSWER,
    "dashboard.views.pipeline_parts": "the SQL of a pipeline file, which the operator writes",
    "dashboard.web.running": _CONFIGURED,
    "dashboard.web.serving": _CONFIGURED,
    "decoding.schema_registry": _JSON,
    "decoding.schema_sources": _JSON,
    "decoding.user_decoders": _CONFIGURED,
    "interfaces": _KERNEL,
    "jetstream.consumer_catalog": _SMALL,
    "jetstream.handlers.consumer_handlers": _SMALL,
    "jetstream.legacy.dialects": "an error text of this server itself",
    "jetstream.template_streams": "a file that this server has written itself",
    "jetstream.transactions.given_up_letters": _SMALL,
    "jwt.sharing_claims": "URLs of claims whose JWT the operator has signed",
    "monitor.leafz": "the address of a socket, which the kernel has written",
    "monitor.pages": _CONFIGURED,
    "monitor.system_answers": _JSON,
    "otel.exporter": _CONFIGURED,
    "server.auth.passwords": _CONFIGURED,
    "server.auth.restrictions": "addresses of a JWT that `jwt.claim_rules` has checked",
    "server.config.checks": _CONFIGURED,
    "server.config.known_servers": _CONFIGURED,
    "server.config.leafnode_config": _CONFIGURED,
    "server.config.operator_config": _CONFIGURED,
    "server.config.tree": _CONFIGURED,
    "server.lifecycle.flags": _CONFIGURED,
    "server.monitoring.log_sinks": _CONFIGURED,
    "server.tls.tls": _CONFIGURED,
}
