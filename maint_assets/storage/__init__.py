"""Reading and writing bytes: local file systems for now, object stores through the same calls."""
