"""Mounted directories, for storage faults that chmod does not cause for root."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


def mount(*arguments: str) -> None:
    """Mount, or skip the test if mounting is not allowed."""
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"mount is not allowed here: {done.stderr.strip()}")


@contextlib.contextmanager
def read_only(directory: Path) -> Iterator[None]:
    """Make a directory from which nothing can be deleted, not even by root."""
    if os.geteuid():
        directory.chmod(0o555)
        yield
        directory.chmod(0o755)
        return
    mount("--bind", str(directory), str(directory))
    try:
        mount("-o", "remount,bind,ro", str(directory))
        yield
    finally:
        subprocess.run(["umount", str(directory)], check=True)
