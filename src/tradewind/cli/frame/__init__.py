"""The common parts of all commands: flags, connections, output, prompts, errors."""
