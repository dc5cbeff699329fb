"""Helpers by which tests build tables, logs and runs."""
