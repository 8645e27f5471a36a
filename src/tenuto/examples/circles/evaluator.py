"""Evaluates a packing of 26 circles in the unit square, in the form of OpenEvolve's example of that name.

A program defines ``run_packing() -> (centers, radii, sum)``. The sum that it claims is compared, never used.
"""

import importlib.util
import math
from itertools import combinations
from pathlib import Path
from typing import Any

COUNT = 26
TARGET = 2.635
"""What AlphaEvolve reached."""
TOLERANCE = 1e-6
"""How far rounding may let circles overlap; what they gain by it is taken off again."""


def evaluate(program_path: str) -> dict[str, Any]:
    """The metrics of a program: all 0, and an `error`, if its packing is none."""
    nothing = {"sum_radii": 0.0, "target_ratio": 0.0, "validity": 0.0, "combined_score": 0.0}
    try:
        total = worth(*packing(program_path))
    except Exception as error:  # noqa: BLE001  whatever a program raises is its own failure
        return {**nothing, "error": f"{type(error).__name__}: {error}"}
    ratio = total / TARGET
    return {"sum_radii": total, "target_ratio": ratio, "validity": 1.0, "combined_score": ratio}


def packing(program_path: str) -> tuple[Any, Any, Any]:
    """What the program in a file returns."""
    spec = importlib.util.spec_from_file_location("packing", Path(program_path))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    centers, radii, claimed = module.run_packing()
    return centers, radii, claimed


def worth(centers: Any, radii: Any, claimed: Any) -> float:
    """The sum of the radii, less all overlaps; raises `ValueError` for anything but a packing."""
    points = [(float(x), float(y)) for x, y in centers]
    sizes = [float(radius) for radius in radii]
    if len(points) != COUNT or len(sizes) != COUNT:
        raise ValueError(f"{len(points)} centers and {len(sizes)} radii, not {COUNT}")
    if not all(math.isfinite(number) for number in (*sizes, *(part for point in points for part in point))):
        raise ValueError("a number is not finite")
    if min(sizes) < 0:
        raise ValueError("a radius is below 0")
    excess = 0.0
    for (x, y), radius in zip(points, sizes, strict=True):
        excess = max(excess, radius - x, x + radius - 1, radius - y, y + radius - 1)
    for (one, first), (other, second) in combinations(zip(points, sizes, strict=True), 2):
        excess = max(excess, first + second - math.dist(one, other))
    if excess > TOLERANCE:
        raise ValueError(f"circles overlap, or leave the square, by {excess:.3g}")
    total = math.fsum(sizes)
    if not math.isclose(float(claimed), total, abs_tol=1e-6):
        raise ValueError(f"the program claims {claimed!r:.40}, and its radii make {total}")
    return total - COUNT * max(excess, 0.0)
