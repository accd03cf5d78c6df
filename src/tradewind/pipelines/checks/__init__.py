"""Checks of a pipeline: its file and tests, explanations, and comparisons of lakes with streams."""
