"""The write path of the log."""
