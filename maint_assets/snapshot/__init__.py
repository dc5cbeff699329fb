"""The read path: which files of the log make a version, and its state as rows."""
