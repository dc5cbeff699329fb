"""Commits of rewritten files, rebased on the commits of other writers."""
