"""What `execute()` returned, as the supervisor is told it.
Most results are plain JSON: `launchers.results`, which knows all else, is loaded for others only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenuto.light import late

if TYPE_CHECKING:
    from tenuto.launchers import results
else:
    results = late("tenuto.launchers.results")


def kept(value: Any, stem: str, *, pickles: bool = False) -> Any:
    """The JSON form of a result; `TypeError` or `ValueError` with the reason for what cannot be kept.

    `stem`: what the paths of its files begin with. `pickles`: the task asked for pickle, where nothing else
    keeps a value.
    """
    if _is_plain(value, 0):
        return value
    return results.Encoder(stem, pickles=pickles).encoded(value)


def _is_plain(value: Any, depth: int) -> bool:
    """True for what JSON says, and gives back, as it is."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return True
    if depth > 50:
        return False
    if kind is list:
        return all(_is_plain(item, depth + 1) for item in value)
    if kind is not dict:
        return False
    return all(
        type(key) is str and key[:1] != "$" and _is_plain(item, depth + 1) for key, item in value.items()
    )
