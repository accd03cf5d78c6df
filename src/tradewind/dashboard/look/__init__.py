"""Renders pages: elements, charts, the frame around a page. It never contacts a server."""
