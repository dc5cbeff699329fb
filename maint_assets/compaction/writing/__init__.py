"""Data files out: names, layout and add actions."""
