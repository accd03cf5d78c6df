"""The interface of everything that streams can be read from, with the rules that hold for
all of it: filters, data loss, division into tasks, buckets and tiers.
"""
