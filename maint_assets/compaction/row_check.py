"""Which bins of a plan have their rows compared before they are committed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from maint_assets.storage.parts import slice_batches

if TYPE_CHECKING:
    from collections.abc import Iterable

    from maint_assets.compaction.packages import Package

SAMPLED = 20
"""One bin of so many is compared where bins are ``sampled``."""

SAMPLED_ROWS = 200_000
"""Of a sampled bin the first rows are compared: what a rewrite does wrong, it does to those too."""


@dataclass(frozen=True, slots=True)
class RowCheck:
    """The bins of one plan that are compared; ``first`` is the plan's first one."""

    extent: Literal["off", "sampled", "full"] = "off"
    digest: str = ""
    first: str | None = None

    @property
    def most_rows(self) -> int | None:
        """How many rows of a bin are compared, None for all."""
        return SAMPLED_ROWS if self.extent == "sampled" else None

    def takes(self, name: str) -> bool:
        """Whether a bin is compared: of one plan always the same ones, the first among them."""
        if self.extent != "sampled":
            return self.extent == "full"
        mark = hashlib.sha256(f"{self.digest}\0{name}".encode()).digest()
        return name == self.first or int.from_bytes(mark[:8], "big") % SAMPLED == 0


UNCHECKED = RowCheck()


def first_bin(packages: Iterable[Package]) -> str | None:
    """The bin with which the packages of a plan begin; None where there are none."""
    for package in packages:
        for batch in slice_batches(package.part, ["bin"]):
            return batch["bin"][0].as_py()
    return None
