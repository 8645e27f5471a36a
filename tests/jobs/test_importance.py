"""The importance of parameters, by a forest."""

from __future__ import annotations

import math
from random import Random
from typing import Any

from tenuto.jobs.parameters import FEWEST, importance


def examples(count: int = 120) -> list[Any]:
    rng = Random(2)
    found = []
    for _ in range(count):
        values = {"lr": rng.random(), "kind": rng.choice("ab"), "idle": rng.random(), "same": 1}
        if values["kind"] == "b":
            values["depth"] = rng.randrange(5)
        found.append((values, 10 * (values["lr"] - 0.5) ** 2 + 2 * (values["kind"] == "b")))
    return found


def test_the_parameters_that_matter_come_first() -> None:
    found = importance(examples())
    assert set(list(found)[:3]) >= {"lr", "kind"}
    assert found["idle"] < 0.15 < found["lr"]
    assert "same" not in found
    assert math.isclose(sum(found.values()), 1.0)
    assert importance(examples()) == found


def test_few_rows_and_rows_that_are_alike_say_nothing() -> None:
    assert importance(examples(FEWEST - 1)) == {}
    assert importance([({"a": 1}, 2.0)] * 50) == {}
    assert importance([({"a": at}, 2.0) for at in range(50)]) == {}
    assert importance([({"a": at}, math.nan) for at in range(50)]) == {}


def test_many_rows_are_quick() -> None:
    assert next(iter(importance(examples(20_000)))) in ("lr", "kind", "depth")
