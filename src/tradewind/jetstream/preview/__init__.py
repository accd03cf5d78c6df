"""The languages of the previews of JetStream, spoken over today's engine.

In 2019 there were message sets and observables, in early 2020 streams and consumers with answers of
`+OK` and `-ERR`. A request is translated into a configuration of today, done by the same functions
as any other, and its result translated back. Nothing here is on the way of a message: the packages
below only know by a mark that a stream acknowledges with `+OK`, and that the ack subjects of a
consumer are short. docs/PREVIEW.md has the whole list.
"""
