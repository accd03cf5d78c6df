"""The tools of the previews: `jsm`, and the four small ones that articles of that time use with it.

They exist so that such an article can be followed word by word; `tradewind` has everything they do,
and more. `jsm` needs a server that speaks the previews (docs/PREVIEW.md); `nats-pub`, `nats-req`,
`nats-sub` and `nats-bench` work with any NATS server.
"""
