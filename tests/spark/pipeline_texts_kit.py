"""Texts of pipelines that several modules use."""

from __future__ import annotations

HEAD = "pipeline: test\ncheckpoint: state\n"
ORDERS = """\
sources:
  orders:
    stream: ORDERS
    payload:
      schema: {id: bigint not null, region: string, amount: "decimal(12,2)"}
"""
