"""The demo: a server, live orders, and a pipeline on Spark, in one command.

Owns what `make run` shows. The demo uses only the product itself, as a user would.
"""
