"""Small notations: durations, templates with columns, charts and rows as text."""
