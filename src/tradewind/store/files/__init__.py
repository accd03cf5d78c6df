"""Access to the operating system: disks, mappings, descriptors, and small files replaced as a
whole.
"""
