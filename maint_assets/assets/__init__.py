"""Dagster: stages as assets, with runs, checks, jobs, schedules. ``cli.launcher`` uses it, too."""
