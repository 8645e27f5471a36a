"""The database's clock as an SQL expression: milliseconds since 1970.
Machines disagree about the time; the database's is the only one that is compared with what rows hold.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement


class now_ms(FunctionElement[int]):
    """``now_ms()``: the instant at which the statement began."""

    type = BigInteger()
    inherit_cache = True
    name = "now_ms"


@compiles(now_ms, "sqlite")
def _sqlite(element: now_ms, compiler: Any, **options: Any) -> str:
    return "CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)"


@compiles(now_ms, "postgresql")
def _postgresql(element: now_ms, compiler: Any, **options: Any) -> str:
    # Not clock_timestamp(): it is volatile, and a comparison with it would use no index.
    return "CAST(extract(epoch FROM statement_timestamp()) * 1000 AS BIGINT)"
