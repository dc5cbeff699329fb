"""Which files are rewritten together."""
