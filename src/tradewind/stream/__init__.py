"""One stream: what is published goes in, is kept as its configuration says, and comes out again."""
