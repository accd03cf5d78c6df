"""Reads as Spark calls them: batch and streaming, with acknowledgements."""
