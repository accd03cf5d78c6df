"""The main job: a server, live orders, and a pipeline on Spark, in one command.

Owns what `make run` shows. Everything that it uses is the product itself, called as a user would.
"""
