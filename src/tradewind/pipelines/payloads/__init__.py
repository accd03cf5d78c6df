"""The schemas of payloads: declared, inferred, checked, and why a payload does not fit."""
