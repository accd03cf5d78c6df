"""The dashboard: streams, messages, consumers and buckets of any NATS server in a browser.

It never uses server internals: it is a client like any other tool. `data` requests and caches data
without pages; `look` produces HTML; `views` are the pages; `web` handles visitors.
"""
