"""Read-only lists, dicts and sets: how a config keeps its containers.
They hold values only; nothing here knows what a config is.

A config's identity is remembered once computed. That is only safe when a list inside it
cannot change behind its back, so a config keeps a read-only copy of every container.
"""

from __future__ import annotations

from typing import Any, NoReturn


def _refuse(self: object, *_args: object, **_kwargs: object) -> NoReturn:
    kind = type(self).__mro__[1].__name__
    raise TypeError(
        f"a {kind} inside a config cannot be changed in place: assign a new {kind} to the parameter"
    )


class FrozenList(list[Any]):
    """A list that refuses to change."""

    __slots__ = ()

    append = extend = insert = remove = pop = clear = sort = reverse = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse


class FrozenDict(dict[Any, Any]):
    """A dict that refuses to change."""

    __slots__ = ()

    clear = pop = popitem = setdefault = update = _refuse
    __setitem__ = __delitem__ = __ior__ = _refuse


class FrozenSet(set[Any]):
    """A set that refuses to change, yet is a ``set`` for `isinstance`."""

    __slots__ = ()

    add = clear = discard = pop = remove = update = _refuse
    difference_update = intersection_update = symmetric_difference_update = _refuse
    __iand__ = __ior__ = __isub__ = __ixor__ = _refuse

    def __repr__(self) -> str:
        return repr(set(self))
