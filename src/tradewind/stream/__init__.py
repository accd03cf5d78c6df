"""One stream: accepts published messages, keeps them as configured, and returns them."""
