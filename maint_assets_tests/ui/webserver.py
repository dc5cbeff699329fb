"""The real webserver in its own process, and queries to its GraphQL endpoint."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).parents[2]
START_SECONDS = 90


@contextlib.contextmanager
def serving(
    command: Sequence[str], env: Mapping[str, str | None], log: Path, *, cwd: Path = ROOT
) -> Iterator[str]:
    """Start a server by the command, and yield its address; its process group is ended afterwards.

    ``--port`` and ``--host`` are added. A variable of None is unset.
    """
    port = _free_port()
    merged = {**os.environ, **env}
    program = Path(sys.executable).with_name(command[0])
    with log.open("ab") as out:
        process = subprocess.Popen(
            [program, *command[1:], "--port", str(port), "--host", "127.0.0.1"],
            cwd=cwd,
            env={name: value for name, value in merged.items() if value is not None},
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    address = f"http://127.0.0.1:{port}"
    try:
        _wait(address, process, log)
        yield address
    finally:
        _end(process)


def asked(address: str, query: str) -> Any:
    """The data that the GraphQL endpoint returns."""
    answer = httpx.post(f"{address}/graphql", json={"query": query}, timeout=30)
    return answer.json()["data"]


def locations(address: str) -> dict[str, set[str]]:
    """The asset groups by code location; waits until all are loaded."""
    query = (
        "{ repositoriesOrError { ... on RepositoryConnection "
        "{ nodes { location { name } assetGroups { groupName } } } } }"
    )
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        nodes = asked(address, query)["repositoriesOrError"].get("nodes")
        if nodes:
            return {
                n["location"]["name"]: {g["groupName"] for g in n["assetGroups"]} for n in nodes
            }
        time.sleep(0.5)
    return {}


def runs(address: str) -> list[str]:
    """The states of the runs, newest first."""
    query = "{ runsOrError { ... on Runs { results { status } } } }"
    return [run["status"] for run in asked(address, query)["runsOrError"]["results"]]


def ended(address: str, *, after: int, seconds: float = 300) -> str:
    """The final state of the run that follows ``after`` earlier ones."""
    until = time.monotonic() + seconds
    found = runs(address)
    while time.monotonic() < until and (
        len(found) <= after or found[0] not in {"SUCCESS", "FAILURE", "CANCELED"}
    ):
        time.sleep(1)
        found = runs(address)
    return found[0]


def _wait(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{address}/server_info", timeout=5).status_code == httpx.codes.OK:
                return
        time.sleep(0.3)
    raise AssertionError("the webserver did not start:\n" + log.read_text()[-2000:])


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
