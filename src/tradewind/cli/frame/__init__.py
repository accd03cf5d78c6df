"""What all commands share: flags, connections, output, prompts, errors."""
