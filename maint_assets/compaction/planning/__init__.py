"""The plan of an OPTIMIZE: which files are rewritten, in which bins, by which task."""
