"""Dagster: stages as assets, with runs, checks, jobs and schedules; also used by ``cli.launcher``."""
