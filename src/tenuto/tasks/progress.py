"""How a running task says how far it is, and logs metrics. Outside of a job its words go nowhere.
Shows nothing, and keeps no time: the job decides how often it passes reports on.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, overload

from tenuto.errors import InvalidValue
from tenuto.light import late
from tenuto.tasks.arguments import guarded
from tenuto.tasks.ports import running_job

if TYPE_CHECKING:
    import weakref
else:
    weakref = late("weakref")  # most tasks have no bar

T = TypeVar("T")
_LONGEST_NAME = 200
"""Of a metric; `workspace.points` reads no longer ones, and no later steps."""
LAST_STEP = (1 << 53) - 1
"""What every reader of JSON keeps exactly."""

_FOR_THE_EYE = frozenset(
    "leave file ncols mininterval maxinterval miniters ascii unit unit_scale dynamic_ncols smoothing "
    "bar_format position unit_divisor write_bytes lock_args nrows colour delay gui".split()
)
"""What `tqdm` of the package of that name takes to draw a bar: accepted, and without effect here."""


@guarded
def progress(value: float, level: int = 0, desc: str | None = None, console: bool = False) -> None:
    """Reports how far the job is.

    `value`: from 0 to 1. `level`: 1 is a loop inside that of level 0, and so on. `desc`: the activity,
    in a few words. `console`: it is also printed to standard error, the log of a job.
    """
    job = running_job()
    if console:
        sys.stderr.write(f"{'  ' * level}{value:4.0%} {desc or ''}".rstrip() + "\n")
    if job is not None:
        job.progress(value, level, desc)


def log_metrics(metrics: Mapping[str, float], step: int | None = None) -> None:
    """Keeps a point of each metric with the job, to be drawn as curves while it runs and compared after.

    `metrics`: name -> number, such as ``{"loss": 0.31}``; NaN and infinity are kept as such. `step`: where on
    the axis, such as the epoch, from 0; by default the one after the last of the name. Of a step that comes
    twice, as in a resumed attempt, the later point counts. Outside of a job only the arguments are checked.
    """
    if step is not None and (type(step) is not int or not 0 <= step <= LAST_STEP):
        step = _step(step)
    values: dict[str, float] = {}
    try:
        for name, value in metrics.items():
            if type(name) is not str or not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
                raise InvalidValue(
                    f"log_metrics() takes names of 1 to {_LONGEST_NAME} printable letters, not {name!r:.80}"
                )
            values[name] = value if type(value) is float else _number(name, value)
    except AttributeError:
        raise InvalidValue(
            f'log_metrics() takes a dict of names and numbers, such as {{"loss": 0.3}}, not {metrics!r:.100}'
        ) from None
    job = running_job()
    if job is not None:
        job.log_metrics(values, step)


def _step(step: Any) -> int:
    """A step of another integer type, such as NumPy's."""
    try:
        found = -1 if isinstance(step, bool) else int(step.__index__())
    except (AttributeError, TypeError):
        found = -1
    if not 0 <= found <= LAST_STEP:
        raise InvalidValue(f"log_metrics(step=...) is an integer from 0 to {LAST_STEP}, not {step!r:.100}")
    return found


def _number(name: str, value: Any) -> float:
    """A value of another type of numbers, such as a tensor with one element."""
    try:
        if isinstance(value, str | bytes | bytearray | complex):
            raise TypeError
        if getattr(value, "ndim", 0):  # NumPy takes no array of one element for a number
            value = value.item()
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    except Exception:  # noqa: BLE001  libraries raise what they like
        raise InvalidValue(f"log_metrics() takes one number for {name!r}, not {value!r:.100}") from None


class tqdm(Generic[T]):
    """Passes items on, and reports how much of it is done; to be used like that of `tqdm`.

    ::

        for batch in tqdm(batches, desc="epoch 3"):
            ...
        with tqdm(total=1000) as bar:
            bar.update(10)

    `iterable`: its items pass on. A loop inside another reports one level deeper, unless `level` says where.
    An iterable without a length makes no report, unless `total` gives one; `initial` of it is
    done already. `desc` and `postfix`: shown with the report. `disable`: nothing is reported.
    """

    _open: ClassVar[dict[int, weakref.WeakSet[tqdm[Any]]]] = {}
    """thread -> its bars that are not closed; a forgotten bar counts for nothing."""

    @overload
    def __init__(self, iterable: Iterable[T], *args: Any, **options: Any) -> None: ...
    @overload
    def __init__(self: tqdm[Any], iterable: None = None, *args: Any, **options: Any) -> None: ...
    def __init__(
        self,
        iterable: Iterable[T] | None = None,
        desc: str | None = None,
        total: float | None = None,
        *,
        level: int | None = None,
        initial: float = 0,
        postfix: Any = None,
        disable: bool | None = False,
        **display: Any,
    ) -> None:
        unknown = display.keys() - _FOR_THE_EYE
        if unknown:
            raise TypeError(f"tqdm() has no argument {', '.join(sorted(unknown))}")
        if total is None:
            total = _length(iterable)
        self.iterable = iterable
        self.desc = desc
        self.total = total
        self.n = self.initial = initial
        self.disable = bool(disable)
        self._level = level
        self._postfix = _spelled(postfix)
        self._home: int | None = None
        if iterable is None:
            self._begin()

    def update(self, n: float | None = 1) -> None:
        """So much more is done."""
        self.n += n or 0
        self.refresh()

    def refresh(self, *_ignored: Any, **_too: Any) -> None:
        """Reports again."""
        if self._home is not None and not self.disable and self.total:
            desc = ", ".join(part for part in (self.desc, self._postfix) if part) or None
            progress(min(max(self.n / self.total, 0.0), 1.0), self._level or 0, desc)

    def reset(self, total: float | None = None) -> None:
        """Begins anew."""
        self.n = self.initial
        self.total = self.total if total is None else total
        self.refresh()

    def set_description(self, desc: str | None = None, refresh: bool | None = True) -> None:
        """Names the activity."""
        self.desc = desc
        if refresh:
            self.refresh()

    set_description_str = set_description

    def set_postfix(self, ordered_dict: Any = None, refresh: bool | None = True, **named: Any) -> None:
        """Adds values to the activity, such as the loss."""
        self.set_postfix_str(_spelled({**dict(ordered_dict or {}), **named}), refresh)

    def set_postfix_str(self, s: str = "", refresh: bool | None = True) -> None:
        """Adds text to the activity."""
        self._postfix = str(s)
        if refresh:
            self.refresh()

    def clear(self, *_ignored: Any, **_too: Any) -> None:
        """Nothing is drawn, so nothing has to be cleared."""

    display = clear

    @classmethod
    def write(cls, s: str, file: Any = None, end: str = "\n", nolock: bool = False) -> None:
        """Prints, where a bar on the screen would be in the way."""
        print(s, file=file, end=end)

    def close(self) -> None:
        """It is over; the next bar may be at this level."""
        if self._home is not None:
            self._open[self._home].discard(self)
            self._home = None

    def _begin(self) -> None:
        self._home = get_ident()
        bars = self._open.setdefault(self._home, weakref.WeakSet())
        if self._level is None:
            self._level = 1 + max((bar._level or 0 for bar in bars), default=-1)
        bars.add(self)
        self.refresh()

    def __iter__(self) -> Iterator[T]:
        assert self.iterable is not None, "give tqdm something to go through, or call update()"
        if self._home is None:
            self._begin()
        try:
            for item in self.iterable:
                yield item
                self.update()
        finally:
            self.close()

    def __enter__(self) -> tqdm[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return int(self.total or 0)

    def __bool__(self) -> bool:
        return True  # a bar of nothing is a bar


def _length(iterable: object) -> int | None:
    return len(iterable) if isinstance(iterable, Sized) else None


def _spelled(values: Any) -> str:
    """``loss=0.12, lr=0.1``."""
    if not values or isinstance(values, str):
        return values or ""
    return ", ".join(
        f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in dict(values).items()
    )
