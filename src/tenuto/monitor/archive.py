"""The archive of a search at any instant: a fold of its elites, each in the cell that it took.
Pure: what the door tells in, the answer out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any


def archive_at(panel: Mapping[str, Any], at: datetime | None) -> dict[str, Any]:
    """The archive now, or as it was; an elite is (index..., objective, key, since), oldest first.

    A cell is (index..., objective, key, since, times it was replaced, how much better the last one was). The
    door was asked for this instant: what it says of candidates in flight is so.
    """
    measures = len(panel["axes"])
    sign = -1 if panel.get("direction") == "min" else 1
    cells: dict[tuple[int, ...], list[Any]] = {}
    for elite in panel["elites"]:
        *index, objective, key, since = elite
        if at is not None and since is not None and datetime.fromisoformat(since) > at:
            continue
        place = tuple(index)
        before = cells.get(place)
        times = 0 if before is None else before[measures + 3] + 1
        gain = None if before is None else objective - before[measures]
        cells[place] = [*index, objective, key, since, times, gain]
    objectives = [cell[measures] for cell in cells.values()]
    history = [one for one in panel["history"] if at is None or datetime.fromisoformat(one[0]) <= at]
    offset = panel.get("offset") or 0.0
    return {
        "group": panel["group"],
        "axes": list(panel["axes"]),
        "cells": list(cells.values()),
        "in_flight": list(panel["in_flight"]),
        "filled": len(cells),
        "total": panel["total"],
        "best": sign * max(sign * one for one in objectives) if objectives else None,
        "qd_score": math.fsum(sign * one - offset for one in objectives) if objectives else None,
        "history": history,
    }
