"""An agent that knows how to pack circles: it perturbs the layout of its parent and lets SLSQP polish it.

It stands where a coding agent would, works without a network, and needs numpy and scipy.
"""

import ast
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize  # type: ignore[import-untyped]

Array = Any
PAIRS = np.triu_indices(26, 1)


def slack(flat: Array) -> Array:
    """The values that must not be below 0: the gaps between circles, and to the four sides of the square."""
    x, y, r = flat.reshape(3, -1)
    i, j = PAIRS
    gaps = np.hypot(x[i] - x[j], y[i] - y[j]) - r[i] - r[j]
    return np.concatenate([gaps, x - r, 1 - x - r, y - r, 1 - y - r])


def slopes(flat: Array) -> Array:
    """The derivatives of `slack`."""
    n = flat.size // 3
    x, y, _ = flat.reshape(3, -1)
    i, j = PAIRS
    rows = np.arange(i.size)
    dx, dy = x[i] - x[j], y[i] - y[j]
    apart = np.maximum(np.hypot(dx, dy), 1e-12)
    found = np.zeros((i.size + 4 * n, 3 * n))
    found[rows, i], found[rows, j] = dx / apart, -dx / apart
    found[rows, n + i], found[rows, n + j] = dy / apart, -dy / apart
    found[rows, 2 * n + i] = found[rows, 2 * n + j] = -1
    each = np.arange(n)
    for side, (column, sign) in enumerate([(0, 1), (0, -1), (n, 1), (n, -1)]):
        row: Array = i.size + side * n + each
        found[row, column + each] = sign
        found[row, 2 * n + each] = -1
    return found


def polished(centers: Array, radii: Array) -> tuple[Array, Array]:
    """The best layout near this one, its circles a little smaller, so that rounding makes none overlap."""
    start = np.concatenate([centers[:, 0], centers[:, 1], radii])
    n = radii.size
    down = np.concatenate([np.zeros(2 * n), -np.ones(n)])
    found = minimize(
        lambda flat: -flat[2 * n :].sum(),
        start,
        jac=lambda flat: down,
        bounds=[(0, 1)] * (2 * n) + [(0, 0.5)] * n,
        constraints=[{"type": "ineq", "fun": slack, "jac": slopes}],
        method="SLSQP",
        options={"maxiter": 150, "ftol": 1e-9},
    ).x
    radii = found[2 * n :] - max(0.0, -slack(found).min()) - 1e-9
    return found[: 2 * n].reshape(2, n).T, radii


def perturbed(centers: Array, radii: Array, chance: np.random.Generator) -> tuple[Array, Array]:
    """The layout with some circles moved: all a little, or a few anywhere."""
    centers = centers.copy()
    if chance.random() < 0.5:
        centers += chance.normal(0, chance.choice([0.01, 0.03, 0.06]), centers.shape)
    else:
        moved = chance.choice(len(centers), chance.integers(1, 4), replace=False)
        centers[moved] = chance.random((len(moved), 2))
    return np.clip(centers, 0.02, 0.98), radii * 0.7


if __name__ == "__main__":
    program = Path("program.py")
    text = program.read_text()
    written = re.search(r"LAYOUT = (\[.*?\n\])", text, re.DOTALL)
    assert written is not None, "program.py has no LAYOUT"
    layout = np.array(ast.literal_eval(written[1]))
    chance = np.random.default_rng(int(os.environ["EVOLVE_SEED"]))
    centers, radii = polished(*perturbed(layout[:, :2], layout[:, 2], chance))
    rows = ",\n".join(f"    [{x:.12f}, {y:.12f}, {r:.12f}]" for (x, y), r in zip(centers, radii, strict=True))
    program.write_text(re.sub(r"LAYOUT = \[.*?\n\]", f"LAYOUT = [\n{rows}\n]", text, flags=re.DOTALL))
    report = {"notes": f"Move circles and polish: {radii.sum():.6f}"}
    Path(os.environ["EVOLVE_REPORT"]).write_text(json.dumps(report))
