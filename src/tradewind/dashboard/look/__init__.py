"""How pages are made of text: elements, charts, the frame around a page. Never asks a server."""
