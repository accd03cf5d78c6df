"""The tools of the JetStream previews: `jsm`, and four small tools used in articles of that time.

They exist so that such an article can be followed literally; `tradewind` can do everything they do.
`jsm` needs a server that supports the previews (docs/reference/PREVIEW.md); `nats-pub`, `nats-req`,
`nats-sub` and `nats-bench` work with any NATS server.
"""
