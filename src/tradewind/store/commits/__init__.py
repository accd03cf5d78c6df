"""Group commit: what a store wants to have on disk, and when it is synced. It never knows what the
store holds.
"""
