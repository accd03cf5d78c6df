"""The bytes on disk: records, side files, checksums, compression. This package never accesses files
or stores.
"""
