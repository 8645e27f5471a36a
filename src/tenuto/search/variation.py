"""Variations: how a child differs from its parents, as a move in the unit cube.
The sigmas are fractions of each parameter's range; the space clips what leaves it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tenuto.errors import SearchError
from tenuto.tasks.arguments import guarded_by

if TYPE_CHECKING:
    from random import Random


class Variation(Protocol):
    """Makes the units of a child from those of two parents."""

    def vary(self, parent: list[float], second: list[float], rng: "Random") -> list[float]: ...

    def definition(self) -> dict[str, Any]: ...


@guarded_by(SearchError)
class IsoLine:
    """A Gaussian step, and one along the line between the parents (Vassiliades and Mouret, 2018)."""

    def __init__(self, iso: float = 0.01, line: float = 0.2) -> None:
        self._iso = _sigma("IsoLine", iso)
        self._line = _sigma("IsoLine", line)

    def definition(self) -> dict[str, Any]:
        return {"kind": "isoline", "iso": self._iso, "line": self._line}

    def vary(self, parent: list[float], second: list[float], rng: "Random") -> list[float]:
        along = rng.gauss(0.0, self._line)
        iso, gauss = self._iso, rng.gauss
        return [a + gauss(0.0, iso) + along * (b - a) for a, b in zip(parent, second, strict=True)]


@guarded_by(SearchError)
class Gaussian:
    """A Gaussian step from one parent."""

    def __init__(self, sigma: float = 0.1) -> None:
        self._sigma = _sigma("Gaussian", sigma)

    def definition(self) -> dict[str, Any]:
        return {"kind": "gaussian", "sigma": self._sigma}

    def vary(self, parent: list[float], second: list[float], rng: "Random") -> list[float]:
        return [a + rng.gauss(0.0, self._sigma) for a in parent]


@guarded_by(SearchError)
class Mixed:
    """One of several variations, drawn for each child by weight."""

    def __init__(self, *variations: Variation, weights: Sequence[float] | None = None) -> None:
        """`weights`: one for each variation; without, all are equally likely."""
        if not variations:
            raise SearchError("Mixed: give the variations to choose from")
        self._variations = variations
        self._weights = list(weights) if weights is not None else [1.0] * len(variations)
        is_sound = all(0 <= weight < float("inf") for weight in self._weights) and sum(self._weights) > 0
        if len(self._weights) != len(variations) or not is_sound:
            raise SearchError(f"Mixed: {len(variations)} variations need as many weights, not {weights!r}")

    def definition(self) -> dict[str, Any]:
        inner = [variation.definition() for variation in self._variations]
        return {"kind": "mixed", "variations": inner, "weights": self._weights}

    def vary(self, parent: list[float], second: list[float], rng: "Random") -> list[float]:
        drawn = rng.choices(self._variations, self._weights)[0]
        return drawn.vary(parent, second, rng)


def _sigma(name: str, sigma: Any) -> float:
    if isinstance(sigma, bool) or not isinstance(sigma, int | float) or not 0 <= sigma < float("inf"):
        raise SearchError(
            f"{name}: {sigma!r} is no standard deviation; it is a fraction of the range, such as 0.1"
        )
    return float(sigma)
