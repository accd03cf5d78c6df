"""The dashboard: streams, messages, consumers and buckets of any NATS server in a browser.

Owns nothing of the server: it is a client, and asks for everything as any other tool does. `data`
asks and remembers, without a page; `look` makes HTML; `views` are the pages; `web` lets visitors
in.
"""
