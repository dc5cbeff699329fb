"""The columns of new files, and their statistics."""
