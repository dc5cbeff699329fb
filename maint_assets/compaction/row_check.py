"""Which bins of a plan have their rows compared before they are committed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

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

    def compares(self, name: str, number: int) -> bool:
        """Whether the new file of this number of an ordered bin is compared, with all its rows."""
        return self.takes(name) and (self.extent == "full" or number % SAMPLED == 0)


UNCHECKED = RowCheck()
