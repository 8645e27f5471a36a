"""Line 23, the archive: it is a fold of its elites."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tenuto.monitor.panels import archive_of

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(second: int) -> datetime:
    return START + timedelta(seconds=second)


def panel(elites: list[list[Any]], direction: str = "max") -> dict[str, Any]:
    axes = [{"name": name, "low": 0, "high": 1, "cells": 3} for name in ("a", "b")]
    return {
        "group": "search:s", "axes": axes, "elites": elites, "in_flight": [[0, 0, "search:s/9"]], "total": 9,
        "direction": direction, "offset": 0.0, "history": [[elite[4], 1, elite[2]] for elite in elites],
    }  # fmt: skip


def test_a_cell_says_how_often_it_was_replaced_and_by_how_much() -> None:
    elites = [
        [0, 1, 1.0, "search:s/1", at(1).isoformat()],
        [0, 1, 1.5, "search:s/2", at(5).isoformat()],
        [2, 2, 0.5, "search:s/3", at(6).isoformat()],
        [0, 1, 1.75, "search:s/4", at(9).isoformat()],
    ]
    now = archive_of(panel(elites))
    assert now["cells"] == [
        [0, 1, 1.75, "search:s/4", at(9).isoformat(), 2, 0.25],
        [2, 2, 0.5, "search:s/3", at(6).isoformat(), 0, None],
    ]
    assert (now["filled"], now["best"], now["qd_score"]) == (2, 1.75, 2.25)
    assert len(now["in_flight"]) == 1


def test_the_best_of_a_search_for_the_least_is_the_least() -> None:
    elites = [[0, 0, 3.0, "search:s/1", at(1).isoformat()], [1, 0, 2.0, "search:s/2", at(2).isoformat()]]
    found = archive_of(panel(elites, "min"))
    assert (found["best"], found["qd_score"]) == (2.0, -5.0)
