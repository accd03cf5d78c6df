"""The surroundings of JetStream in a server: its folder, limits and remotes; the offline check."""
