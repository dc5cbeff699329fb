"""Log cleanup: the plan of the log files that no retained version needs, and their deletion."""
