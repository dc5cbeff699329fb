"""The read path: the log files that make up a version, and the table state as rows."""
