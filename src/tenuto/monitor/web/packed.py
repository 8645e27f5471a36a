"""Owns curves as a plot wants them: columns of machine numbers, not of digits.
Reads no files; what programs get is exact, and not made here.
"""

from __future__ import annotations

import math
import sys
from array import array
from base64 import b64encode
from collections.abc import Iterable, Sequence

from tenuto.monitor import shapes

_LEAST, _MOST = 1e-30, 1e30
_FINE = 1e-3
"""Of the largest value: where all lie closer together, a plot would show what 32 bits round."""


def pack(found: shapes.MetricsJson, *, with_times: bool) -> None:
    """Packs the points of all curves of an answer."""
    for curve in (curve for job in found["jobs"] for curve in job["curves"]):
        steps, times, values = curve["steps"], curve["times"], curve["values"]
        bits, even = _bits(values), _is_even(steps)
        curve["packed"] = {
            "steps": [steps[0], steps[1] - steps[0]] if even else steps,
            "even": even,
            "values": _text("f" if bits == 32 else "d", values),
            "bits": bits,
            "times": _text("d", times) if with_times else None,
            "newest": max((time for time in times if time is not None), default=None),
        }
        curve["steps"], curve["times"], curve["values"] = [], [], []


def _is_even(steps: Sequence[int]) -> bool:
    apart = steps[1] - steps[0] if len(steps) > 2 else 0
    return apart > 0 and steps == list(range(steps[0], steps[0] + apart * len(steps), apart))


def _bits(values: Sequence[float | None]) -> int:
    sizes = [abs(one) for one in values if one]
    if not sizes or not _LEAST < min(sizes) <= max(sizes) < _MOST:
        return 64
    known = [one for one in values if one is not None]
    return 32 if max(known) - min(known) > _FINE * max(sizes) else 64


def _text(kind: str, numbers: Iterable[float | None]) -> str:
    column = array(kind, [math.nan if one is None else one for one in numbers])
    if sys.byteorder == "big":
        column.byteswap()
    return b64encode(column.tobytes()).decode()
