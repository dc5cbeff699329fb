"""The read path of the log: the files that make up a version, and its state as rows."""
