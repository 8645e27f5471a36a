"""Outcomes as rows keep them: JSON text, written when a candidate ends and read when it is told.
Judges nothing: what is kept was judged by `read_outcome` before.
"""

from __future__ import annotations

import json

from tenuto.search.outcome import Outcome, point


def kept(outcome: Outcome) -> str:
    """An outcome that was read, as text."""
    return json.dumps(
        {
            "objective": outcome.objective,
            "measures": list(point(outcome)),
            "cost": outcome.cost,
            "metrics": outcome.metrics,
            "artifacts": outcome.artifacts,
            "solution": outcome.solution,
        }
    )


def read_kept(text: str) -> Outcome:
    """The outcome that a row keeps; a restart reads hundreds of thousands of them."""
    found = json.loads(text).get
    return Outcome(
        found("objective"),
        tuple(found("measures", ())),
        found("cost", 0.0),
        found("metrics", {}),
        found("artifacts", {}),
        found("solution"),
    )
