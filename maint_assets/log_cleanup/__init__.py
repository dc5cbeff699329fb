"""Log cleanup: which files of the log no kept version needs, and their deletion."""
