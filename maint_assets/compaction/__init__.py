"""OPTIMIZE: which files are rewritten together, and their rewrite."""
