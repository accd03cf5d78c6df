"""Changes of several streams and consumers that happen together, or not at all."""
