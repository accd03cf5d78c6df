"""Moved."""

from tradewind.options import *  # noqa: F403
