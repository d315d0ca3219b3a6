"""Tables: a DataFrame where pandas is installed, else a list of records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Table = Any  # pandas.DataFrame, or list[dict[str, Any]]


def table(rows: Iterable[Mapping[str, Any]]) -> Table:
    """Make a table with a column for each key; pandas is loaded only if it is installed."""
    records = [dict(row) for row in rows]
    try:
        import pandas
    except ImportError:
        return records
    return pandas.DataFrame.from_records(records)
