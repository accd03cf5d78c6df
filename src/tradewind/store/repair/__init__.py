"""Damage reports, and salvaging intact data from damaged blocks."""
