"""Materialized views: a query whose results are kept up to date.

A view is a pipeline that is described by one SQL text instead of a file.
"""
