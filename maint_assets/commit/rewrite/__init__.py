"""Commits of rewritten files, put after whatever other writers committed."""
