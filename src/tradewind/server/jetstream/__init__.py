"""JetStream in a server: folder, limits and remote servers, and the check of an unused store."""
