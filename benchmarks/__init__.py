"""Side-by-side benchmarks: tradewind-server against the official nats-server, in one run.

`python -m benchmarks` runs whole servers under load, `python -m benchmarks.micro` single parts in
process. Not part of the installed product.
"""
