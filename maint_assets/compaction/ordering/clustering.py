"""The clustering columns of a table (PROTOCOL, "Clustered Table"): domain ``delta.clustering``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from maint_assets.errors import CorruptLogError
from maint_assets.snapshot.control_state import non_file_actions

if TYPE_CHECKING:
    from maint_assets.snapshot.head import TableHead

DOMAIN = "delta.clustering"


class _Clustering(msgspec.Struct, rename="camel"):
    clustering_columns: list[Any] = []


def clustering_columns(head: TableHead) -> tuple[tuple[str, ...], ...]:
    """The physical paths of the clustering columns; none for a table that is not clustered.

    Delta writes each path as a list of names, the example in PROTOCOL has one plain name. Raises
    CorruptLogError, naming the table, when the domain cannot be read.
    """
    domains = {each.domain: each.configuration for each in non_file_actions(head, now_ms=0).domains}
    text = domains.get(DOMAIN)
    if text is None:
        return ()
    try:
        found = msgspec.json.decode(text, type=_Clustering).clustering_columns
    except msgspec.DecodeError as error:
        raise CorruptLogError(
            head.table,
            f"its domain {DOMAIN} cannot be read ({error})",
            "set its clustering columns again with ALTER TABLE ... CLUSTER BY",
        ) from error
    return tuple((each,) if isinstance(each, str) else tuple(each) for each in found)
