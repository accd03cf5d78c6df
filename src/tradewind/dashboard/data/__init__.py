"""What the dashboard knows of a server: asked only while somebody looks at it, kept in bounds."""
