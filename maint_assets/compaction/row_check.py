"""The choice of bins whose rows are compared with their inputs before the commit."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

SAMPLED = 20
"""With ``sampled``, one of this many bins is compared."""

SAMPLED_ROWS = 200_000
"""Rows compared of a sampled bin: the first ones, as a faulty rewrite alters those as well."""


@dataclass(frozen=True, slots=True)
class RowCheck:
    """The bins of a plan that are compared; ``first`` is the id of its first bin."""

    extent: Literal["off", "sampled", "full"] = "off"
    digest: str = ""
    first: str | None = None

    @property
    def most_rows(self) -> int | None:
        """The number of rows of a bin that are compared; None for all."""
        return SAMPLED_ROWS if self.extent == "sampled" else None

    def takes(self, name: str) -> bool:
        """Whether a bin is compared: deterministic for a plan, always the first bin."""
        if self.extent != "sampled":
            return self.extent == "full"
        mark = hashlib.sha256(f"{self.digest}\0{name}".encode()).digest()
        return name == self.first or int.from_bytes(mark[:8], "big") % SAMPLED == 0

    def compares(self, name: str, number: int) -> bool:
        """Whether this new file of an ordered bin is compared, with all its rows."""
        return self.takes(name) and (self.extent == "full" or number % SAMPLED == 0)


UNCHECKED = RowCheck()
