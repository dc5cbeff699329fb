"""The command line."""

from maint_assets.cli.commands import main

__all__ = ["main"]
