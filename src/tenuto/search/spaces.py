"""Spaces: what the parameters of a candidate may be, drawn at random or moved in the unit cube.
Knows no task and no archive; every draw comes from the generator that is handed in.
"""

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tenuto.errors import SearchError
from tenuto.light import NamedTuple
from tenuto.search.outcome import plain
from tenuto.search.programs import Programs
from tenuto.tasks.arguments import guarded_by
from tenuto.tasks.base import ConfigBase
from tenuto.tasks.identity import identity
from tenuto.tasks.schema import schema_of

if TYPE_CHECKING:
    from random import Random

    from tenuto.search.map_elites import Variation

Shape = int | tuple[int, ...] | None
_FEWEST_REDRAWS = 0.1
_STEPS = 10
_FEW = 10_000
"""Points of a space that is small enough to look at all of them."""
_DRAWS = 64
_MOST = 1e300
_LONGEST = 1 << 62
_APART = math.sqrt(0.5)
"""Of two options, each of which has a coordinate of its own: so they lie as far apart as two bounds."""


class Numeric:
    """Numbers between two bounds: one, or a list of them (`shape`)."""

    __slots__ = ("high", "log", "low", "shape", "size")
    kind = "numeric"

    @guarded_by(SearchError)
    def __init__(self, low: float, high: float, *, shape: Shape = None, log: bool = False) -> None:
        """`shape`: how many numbers, or lengths of nested lists; `log`: equal ratios are equally likely."""
        _check_bounds(self.kind, low, high, log)
        self.low = low
        self.high = high
        self.log = log
        self.shape = _shape(shape)
        self.size = math.prod(self.shape)

    def __repr__(self) -> str:
        shape = f", shape={self.shape}" if self.shape else ""
        return f"{type(self).__name__}({self.low}, {self.high}{shape}{', log=True' if self.log else ''})"

    def definition(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "low": self.low,
            "high": self.high,
            "shape": list(self.shape),
            "log": self.log,
        }

    def draw(self, rng: "Random") -> Any:
        return self.from_units([rng.random() for _ in range(self.size)])

    def from_units(self, units: Sequence[float]) -> Any:
        """The value at a point of the unit cube."""
        return self.nested([self.number(unit) for unit in units])

    def nested(self, numbers: Sequence[Any]) -> Any:
        """The numbers in the shape of a value."""
        return _nested(numbers, self.shape) if self.shape else numbers[0]

    def to_units(self, value: Any) -> list[float]:
        """The point of the unit cube where a value lies."""
        return [self.unit(number) for number in _flat(value)]

    def flat(self, value: Any) -> list[Any]:
        """The numbers of a value in one list."""
        return _flat(value)

    def checked(self, name: str, value: Any) -> Any:
        """A value that a person gave, in its shape; `SearchError` if it is none of this dimension."""
        value = plain(value)
        numbers = [plain(number) for number in _flat(value)]
        if not _has_shape(value, self.shape):
            wanted = f"lists of lengths {list(self.shape)}" if self.shape else "one number"
            raise SearchError(f"{name}={value!r:.80} is not {wanted}")
        for number in numbers:
            is_number = isinstance(number, int | float) and not isinstance(number, bool)
            if not is_number or not self.low <= number <= self.high or self.number_of(number) != number:
                raise SearchError(f"{name}={value!r:.80} is not in {self!r}: {number!r:.40} is not")
        return self.nested([self.number_of(number) for number in numbers])

    def number_of(self, number: float) -> float:
        """A number within the bounds, of the kind that this dimension has."""
        return float(number)

    def number(self, unit: float) -> float:
        raise NotImplementedError

    def unit(self, number: float) -> float:
        raise NotImplementedError

    def choices(self, steps: int | None) -> Sequence[Any]:
        """The numbers that a grid of so many steps tries for one entry; None: all of them, or 10 reals."""
        raise NotImplementedError


class Real(Numeric):
    """Real numbers between two bounds."""

    __slots__ = ()
    kind = "real"

    def number(self, unit: float) -> float:
        if self.log:
            number = self.low * math.pow(self.high / self.low, unit)
            return min(max(number, self.low), self.high)
        return min(max(self.low + unit * (self.high - self.low), self.low), self.high)

    def unit(self, number: float) -> float:
        if self.log:
            return math.log(number / self.low) / math.log(self.high / self.low)
        return (number - self.low) / (self.high - self.low)

    def choices(self, steps: int | None) -> Sequence[Any]:
        last = (steps or _STEPS) - 1
        return [self.number(step / last) for step in range(last + 1)] if last else [self.number(0.5)]


class Integer(Numeric):
    """Whole numbers between two bounds, both included."""

    __slots__ = ()
    kind = "integer"

    @guarded_by(SearchError)
    def __init__(self, low: int, high: int, *, shape: Shape = None, log: bool = False) -> None:
        if type(low) is not int or type(high) is not int:
            raise SearchError(f"Integer({low!r}, {high!r}): both bounds are whole numbers; Real takes others")
        super().__init__(low, high, shape=shape, log=log)

    def number_of(self, number: float) -> int:
        return round(number)

    def number(self, unit: float) -> int:
        count = int(self.high) - int(self.low) + 1
        if self.log:
            least, most = math.log(self.low - 0.5), math.log(self.high + 0.5)
            found = round(math.exp(least + unit * (most - least)))
        else:
            found = int(self.low) + int(unit * count)
        return min(max(found, int(self.low)), int(self.high))

    def unit(self, number: float) -> float:
        if self.log:
            least, most = math.log(self.low - 0.5), math.log(self.high + 0.5)
            return (math.log(number) - least) / (most - least)
        return (number - self.low + 0.5) / (self.high - self.low + 1)

    def choices(self, steps: int | None) -> Sequence[Any]:
        if steps is None or self.high - self.low < steps:
            return range(int(self.low), int(self.high) + 1)
        return sorted({self.number((step + 0.5) / steps) for step in range(steps)})


class Sub:
    """A config class as an option of a `Choice`, with the parameters that vary if it is chosen."""

    __slots__ = ("kind", "name", "space")

    def __init__(self, kind: type[ConfigBase], /, **dimensions: "Dimension") -> None:
        """`dimensions`: by name, as in a space; others have their defaults."""
        given: Any = kind
        if not isinstance(given, type) or not issubclass(given, ConfigBase):
            raise SearchError(f"Sub(kind={given!r:.80}): give a class of configs, and what of it varies")
        self.kind = kind
        self.name = kind.__name__
        try:
            self.space = Space(dimensions) if dimensions else None
        except SearchError as error:
            raise SearchError(f"Sub() of {self.name}: {error}") from None
        schema = schema_of(kind)
        for unknown in sorted(dimensions.keys() - schema.parameters.keys()):
            raise SearchError(f"Sub({self.name}): it has no parameter {unknown!r}")
        for name in schema.required:
            if name not in dimensions:
                raise SearchError(f"Sub({self.name}): {name!r} has no default: say how it varies")

    def __repr__(self) -> str:
        inner = self.space.dimensions if self.space is not None else {}
        return f"Sub({', '.join([self.name, *(f'{name}={one!r}' for name, one in inner.items())])})"

    def definition(self) -> dict[str, Any]:
        inner = self.space.definition() if self.space is not None else {}
        return {IS: schema_of(self.kind).id, "space": inner}

    @property
    def dimensions(self) -> "Mapping[str, Dimension]":
        return self.space.dimensions if self.space is not None else {}

    def draw(self, rng: "Random") -> dict[str, Any]:
        return {IS: self.name, **(self.space.draw(rng) if self.space is not None else {})}

    def checked(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Plain values of this option that a person gave."""
        given = {name: one for name, one in value.items() if name != IS}
        if self.space is None and given:
            raise SearchError(f"{self.name} varies nothing, and {min(given)!r} was given")
        return {IS: self.name, **(self.space.checked(given) if self.space is not None else {})}

    def plain(self, config: Any) -> dict[str, Any]:
        """A config of this class as plain values; `SearchError` if it sets what does not vary."""
        values = self.checked({name: getattr(config, name) for name in self.dimensions})
        if identity(self.realized(values)) != identity(config):
            raise SearchError(f"{config!r:.80} is not in {self!r:.200}: what does not vary has its default")
        return values

    def realized(self, value: Mapping[str, Any]) -> Any:
        """The config of plain values."""
        inner = {name: value[name] for name in self.dimensions}
        kind: Any = self.kind
        return kind.C(**(self.space.realized(inner) if self.space is not None else {}))

    def points(self, steps: int | None) -> list[dict[str, Any]]:
        """The plain values that a grid of so many steps tries."""
        if self.space is None:
            return [{IS: self.name}]
        points = Points(self.space, steps)
        if points.count > _MOST_POINTS:
            raise SearchError(f"{self!r:.200} has {points.count} points: too many for a grid; give steps")
        return [{IS: self.name, **points.values(at)} for at in range(points.count)]


class Choice:
    """One of several plain values, or of classes with parameters of their own (`Sub`)."""

    __slots__ = ("options", "subs")
    size = 0

    @guarded_by(SearchError)
    def __init__(self, options: Sequence[Any]) -> None:
        self.options = tuple(options) if not isinstance(options, str) else ()
        if not self.options:
            raise SearchError(f"Choice({options!r}): give a list of the values to choose from")
        self.subs = {option.name: option for option in self.options if isinstance(option, Sub)}
        for option in self.options:
            if not isinstance(option, str | int | float | bool | None | Sub):
                raise SearchError(f"Choice: {option!r} is no plain value (text, number, true or false, None)")
        if len(self.subs) != sum(isinstance(option, Sub) for option in self.options):
            raise SearchError(f"{self!r:.200}: two options are of classes of one name")

    def __repr__(self) -> str:
        return f"Choice({list(self.options)!r})"

    def definition(self) -> dict[str, Any]:
        return {
            "kind": "choice",
            "options": [one.definition() if isinstance(one, Sub) else one for one in self.options],
        }

    def sub(self, value: Any) -> Sub | None:
        """The option that a value is of, if that has parameters of its own."""
        return self.subs[value[IS]] if isinstance(value, Mapping) else None

    def checked(self, name: str, value: Any) -> Any:
        """An option that a person gave; `SearchError` if it is none."""
        found = plain(value)
        if isinstance(found, ConfigBase):
            given = schema_of(type(found)).id
            sub = next((one for one in self.subs.values() if schema_of(one.kind).id == given), None)
            if sub is not None:
                return sub.plain(found)
        elif isinstance(found, Mapping) and found.get(IS) in self.subs:
            return self.subs[found[IS]].checked(found)
        same = [option for option in self.options if repr(option) == repr(found)] or [
            option for option in self.options if option == found
        ]
        if not same or isinstance(same[0], Sub):
            raise SearchError(f"{name}={value!r:.80} is none of the options of {self!r:.200}")
        return same[0]

    def draw(self, rng: "Random") -> Any:
        option = self.options[rng.randrange(len(self.options))]
        return option.draw(rng) if isinstance(option, Sub) else option

    def choices(self, steps: int | None) -> Sequence[Any]:
        options = {repr(option): option for option in self.options}.values()
        return [
            value
            for option in options
            for value in (option.points(steps) if isinstance(option, Sub) else [option])
        ]


IS = "is"
"""Beside the plain values of a `Sub`: the name of its class, as no parameter can be called."""
_MOST_POINTS = 1_000_000
Dimension = Numeric | Choice


class Space:
    """The parameters that vary, by name."""

    def __init__(self, dimensions: Any) -> None:
        """Raises `SearchError` for an empty space, or a dimension that is none."""
        if not isinstance(dimensions, Mapping) or not dimensions:
            raise SearchError('space: give the parameters that vary, such as {"x": Real(0, 1)}')
        for name, dimension in dimensions.items():
            if not isinstance(dimension, Numeric | Choice):
                raise SearchError(f"space: {name!r} is {dimension!r}, not a Real, an Integer or a Choice")
        self.dimensions = dict(dimensions)
        self.count = sum(_count(dimension) for dimension in self.dimensions.values())
        """How many values one candidate has, at most."""
        self._redraw = max(_FEWEST_REDRAWS, 1 / self.count)

    def definition(self) -> dict[str, Any]:
        return {name: dimension.definition() for name, dimension in self.dimensions.items()}

    def draw(self, rng: "Random") -> dict[str, Any]:
        """Values drawn uniformly."""
        return {name: dimension.draw(rng) for name, dimension in self.dimensions.items()}

    def vary(
        self, variation: "Variation", parent: Any, second: Any, inspirations: Sequence[Any], rng: "Random"
    ) -> dict[str, Any]:
        """A child of two parents: numbers by the variation, a choice from either, now and then drawn anew."""
        moved = iter(variation.vary(self.units(parent), self.units(second), rng))
        child = {}
        for name, dimension in self.dimensions.items():
            if isinstance(dimension, Numeric):
                units = [min(max(next(moved), 0.0), 1.0) for _ in range(dimension.size)]
                child[name] = dimension.from_units(units)
                if isinstance(dimension, Integer):
                    child[name] = self._stirred(dimension, child[name], parent[name], rng)
            elif rng.random() < self._redraw:
                child[name] = dimension.draw(rng)
            else:
                child[name] = (parent if rng.random() < 0.5 else second)[name]
                sub = dimension.sub(child[name])
                if sub is not None and sub.space is not None:
                    pair = [one[name] for one in (parent, second) if dimension.sub(one[name]) is sub]
                    varied = sub.space.vary(variation, pair[0], pair[-1], (), rng)
                    child[name] = {IS: sub.name, **varied}
        return child

    def _stirred(self, dimension: Integer, value: Any, before: Any, rng: "Random") -> Any:
        """Whole numbers, where a small move ends at the number where it began: now and then the next one."""
        numbers = _flat(value)
        for at, (number, parent) in enumerate(zip(numbers, _flat(before), strict=True)):
            if number == parent and rng.random() < self._redraw:
                moved = number + rng.choice((-1, 1))
                numbers[at] = min(max(moved, int(dimension.low)), int(dimension.high))
        return dimension.nested(numbers)

    def units(self, values: Mapping[str, Any]) -> list[float]:
        """The numbers among the values, as a point of the unit cube."""
        return [
            unit
            for name, dimension in self.dimensions.items()
            if isinstance(dimension, Numeric)
            for unit in dimension.to_units(values[name])
        ]

    def key(self, values: Mapping[str, Any]) -> str:
        """Equal for equal values."""
        return repr([values[name] for name in self.dimensions])

    def checked(self, values: Any) -> dict[str, Any]:
        """Values that a person gave, as the space has them; `SearchError` names the one that it has not."""
        wanted = ", ".join(self.dimensions)
        if not isinstance(values, Mapping):
            raise SearchError(f"{values!r:.80} are no values: give a mapping with {wanted}")
        for name in [*self.dimensions, *values]:
            if name not in values:
                raise SearchError(f"the value of {name!r} is missing: the search varies {wanted}")
            if name not in self.dimensions:
                raise SearchError(f"{name!r} is not varied: the search varies {wanted}")
        return {name: dimension.checked(name, values[name]) for name, dimension in self.dimensions.items()}

    def realized(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Plain values as a task takes them: those of a `Sub` as a config of its class."""
        found = dict(values)
        for name, dimension in self.dimensions.items():
            sub = dimension.sub(found[name]) if isinstance(dimension, Choice) else None
            if sub is not None:
                found[name] = sub.realized(found[name])
        return found

    def examples(self, rng: "Random") -> Iterator[dict[str, Any]]:
        """Values of which each `Sub` is chosen once, at least."""
        base = self.draw(rng)
        yield base
        for name, dimension in self.dimensions.items():
            for sub in dimension.subs.values() if isinstance(dimension, Choice) else ():
                inner = sub.space.examples(rng) if sub.space is not None else ({},)
                for values in inner:
                    yield {**base, name: {IS: sub.name, **values}}

    @property
    def is_finite(self) -> bool:
        """True if no parameter is a real number, and no option has very many, so that all can be tried."""
        for dimension in self.dimensions.values():
            if isinstance(dimension, Real):
                return False
            for sub in dimension.subs.values() if isinstance(dimension, Choice) else ():
                inner = sub.space
                if inner is not None and not (inner.is_finite and Points(inner).count <= _FEW):
                    return False
        return True


def _count(dimension: Dimension) -> int:
    if isinstance(dimension, Numeric):
        return dimension.size
    return 1 + max((one.space.count for one in dimension.subs.values() if one.space is not None), default=0)


class _Axis(NamedTuple):
    """One parameter of a grid, which tries the same choices for each of its entries."""

    name: str
    dimension: Dimension
    choices: Sequence[Any]
    key: Callable[[Any], Any]
    at: Callable[[Any], int]
    """The place of a key among the choices; `ValueError` or `KeyError` if it is none of them."""
    size: int


class Points:
    """The points of a grid in a space, by number from 0; the last parameter varies fastest."""

    def __init__(self, space: Space, steps: int | None = None) -> None:
        """`steps`: how many numbers of each parameter; None: all whole numbers, and 10 reals."""
        self._axes = []
        for name, dimension in space.dimensions.items():
            choices = dimension.choices(steps)
            is_choice = isinstance(dimension, Choice)
            key = repr if is_choice else operator.index if isinstance(dimension, Integer) else float
            places = {} if isinstance(choices, range) else {key(one): at for at, one in enumerate(choices)}
            at = choices.index if isinstance(choices, range) else places.__getitem__
            self._axes.append(_Axis(name, dimension, choices, key, at, dimension.size or 1))
        self.count = math.prod(len(axis.choices) ** axis.size for axis in self._axes)
        self._coordinates: list[list[float]] = []

    def values(self, number: int) -> dict[str, Any]:
        """The values of a point."""
        found: dict[str, Any] = {}
        for axis in reversed(self._axes):
            entries = []
            for _ in range(axis.size):
                number, at = divmod(number, len(axis.choices))
                entries.append(axis.choices[at])
            entries.reverse()
            is_numeric = isinstance(axis.dimension, Numeric)
            found[axis.name] = axis.dimension.nested(entries) if is_numeric else entries[0]
        return dict(reversed(found.items()))

    def number(self, values: Any) -> int | None:
        """The number of the point with these values; None if the grid has none."""
        found = 0
        try:
            for axis in self._axes:
                value = values[axis.name]
                entries = [value] if isinstance(axis.dimension, Choice) else _flat(value)
                if len(entries) != axis.size:
                    return None
                for entry in entries:
                    found = found * len(axis.choices) + axis.at(axis.key(entry))
        except (KeyError, TypeError, ValueError, OverflowError):
            return None
        return found

    def untried(self, tried: set[int], near: Any, rng: "Random") -> Iterator[int]:
        """Points that were not tried: from the nearest on, of many points in any order; all of them."""
        if self.count <= _FEW:
            if not self._coordinates:
                self._coordinates = [self._place(self.values(at)) for at in range(self.count)]
            is_here = self.number(near) is not None  # a sampler of the user's may propose anything
            here = self._place(near) if is_here else self._coordinates[rng.randrange(self.count)]
            rest = [at for at in range(self.count) if at not in tried]
            yield from sorted(rest, key=lambda at: round(math.dist(self._coordinates[at], here), 9))
            return
        yield from (at for at in (rng.randrange(self.count) for _ in range(_DRAWS)) if at not in tried)
        begin = rng.randrange(self.count)
        places = ((begin + step) % self.count for step in range(self.count))
        yield from (at for at in places if at not in tried)

    def _place(self, values: Any) -> list[float]:
        """Coordinates of values: numbers as in the unit cube, and one for each option."""
        found: list[float] = []
        for axis in self._axes:
            if isinstance(axis.dimension, Choice):
                found += _choice_place(axis.dimension, values[axis.name])
            else:
                found += axis.dimension.to_units(values[axis.name])
        return found


def _choice_place(dimension: Choice, value: Any) -> list[float]:
    """A coordinate for each option, and those of the numbers of options that have parameters."""
    found: list[float] = []
    sub = dimension.sub(value)
    for option in {repr(option): option for option in dimension.options}.values():
        found.append(_APART if (option is sub if isinstance(option, Sub) else option == value) else 0.0)
        for name, inner in option.dimensions.items() if isinstance(option, Sub) else ():
            if isinstance(inner, Numeric):
                found += inner.to_units(value[name]) if option is sub else [0.0] * inner.size
            elif option is sub:
                found += _choice_place(inner, value[name])
            else:
                found += [0.0] * len(_choice_place(inner, inner.choices(1)[0]))
    return found


class Objects:
    """Values of any kind, made and changed by functions of the user."""

    def __init__(self, start: Any, vary: Any) -> None:
        """`start(rng)` makes a value, `vary(parent, inspirations, rng)` a changed one."""
        if not callable(start) or not callable(vary):
            raise SearchError(
                "start=make(rng) and vary=change(parent, inspirations, rng) come together, as functions"
            )
        self._start = start
        self._vary = vary

    def definition(self) -> dict[str, Any]:
        return {"start": _named(self._start), "vary": _named(self._vary)}

    def draw(self, rng: "Random") -> Any:
        return self._start(rng)

    def vary(
        self, variation: "Variation", parent: Any, second: Any, inspirations: Sequence[Any], rng: "Random"
    ) -> Any:
        return self._vary(parent, list(inspirations), rng)

    def key(self, values: Any) -> str:
        return repr(values)


Domain = Space | Objects | Programs


class Untried:
    """What of a domain was not tried yet, as far as that can be known: of spaces without real numbers."""

    def __init__(self, domain: Domain) -> None:
        self._domain = domain
        self._points = Points(domain) if isinstance(domain, Space) and domain.is_finite else None
        self._tried: set[int] = set()

    def note(self, values: Any) -> None:
        """Takes note of values that were tried."""
        number = self._points.number(values) if self._points is not None else None
        if number is not None:
            self._tried.add(number)

    def has(self, values: Any) -> bool:
        """False if the values are known to have been tried."""
        return self._points is None or self._points.number(values) not in self._tried

    def others(self, near: Any, rng: "Random") -> Iterator[Any]:
        """Values that were not tried, of a small space the nearest first; of an endless one some draws."""
        if self._points is not None:
            yield from map(self._points.values, self._points.untried(self._tried, near, rng))
        elif not isinstance(self._domain, Programs):
            yield from (self._domain.draw(rng) for _ in range(_DRAWS))


def _named(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def _check_bounds(kind: str, low: Any, high: Any, log: bool) -> None:
    for bound in (low, high):
        if isinstance(bound, bool) or not isinstance(bound, int | float) or not -_MOST <= bound <= _MOST:
            raise SearchError(f"{kind}: {bound!r:.40} is no bound; both are finite numbers up to {_MOST:g}")
    if kind == "integer" and high - low >= _LONGEST:
        raise SearchError(f"{kind}: between {low} and {high} lie more than 2^62 numbers; give a Real")
    if low > high or (low == high and kind == "real"):
        raise SearchError(f"{kind}: the lower bound {low} is not below the upper bound {high}")
    if log and low <= 0:
        raise SearchError(f"{kind}: a logarithmic scale needs a lower bound above 0, not {low}")


def _shape(shape: Shape) -> tuple[int, ...]:
    lengths = () if shape is None else (shape,) if isinstance(shape, int) else tuple(shape)
    if any(type(length) is not int or length < 1 for length in lengths):
        raise SearchError(f"shape={shape!r}: give a whole number above 0, or several")
    return lengths


def _nested(numbers: Sequence[Any], shape: tuple[int, ...]) -> list[Any]:
    if len(shape) == 1:
        return list(numbers)
    step = len(numbers) // shape[0]
    return [_nested(numbers[at : at + step], shape[1:]) for at in range(0, len(numbers), step)]


def _has_shape(value: Any, shape: tuple[int, ...]) -> bool:
    if not shape:
        return not isinstance(value, list | tuple)
    is_long = isinstance(value, list | tuple) and len(value) == shape[0]
    return is_long and all(_has_shape(item, shape[1:]) for item in value)


def _flat(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [number for item in value for number in _flat(item)]
    return [value]
