"""The operating system: disks, mappings, descriptors, and small files that are replaced whole."""
