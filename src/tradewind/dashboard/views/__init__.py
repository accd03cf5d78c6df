"""The pages, one module for each part of a server."""
