"""Dagster: stages as assets, with runs, checks, jobs and schedules. ``cli.launcher`` uses it too."""
