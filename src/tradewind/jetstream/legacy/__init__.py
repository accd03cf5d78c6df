"""The APIs of the JetStream previews, on top of today's engine.

The 2019 preview had message sets and observables; the early 2020 preview had streams and consumers
with `+OK` and `-ERR` responses. A request is translated into a current configuration, executed by
the same functions as any other, and its result is translated back. This package never handles
messages: other packages only have flags that a stream acknowledges with `+OK`, and that the ack
subjects of a consumer are short. docs/reference/PREVIEW.md has the complete list.

In names, `legacy` stands for the previews, because `preview` alone means changes that are shown
before they are made. Users see the word "preview": the mark `tradewind.preview`, the page, errors.
"""
