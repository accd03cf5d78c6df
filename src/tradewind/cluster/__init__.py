"""nats-server clusters: planned, written to files, started and stopped on this machine.

Tradewind is a single server. For replicated streams, users run nats-server and continue to use the
client, the command line, the dashboard and the pipelines. This package writes the configuration of
such a cluster and runs one locally; it never speaks the NATS protocol itself.
"""
