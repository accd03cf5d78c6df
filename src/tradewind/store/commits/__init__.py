"""Group commit: which bytes a store has to sync, and when. The content of stores is never known
here.
"""
