"""The only package that knows Dagster."""
