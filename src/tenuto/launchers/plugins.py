"""Launchers that other distributions bring, by the entry points of the group `tenuto.launchers`.
Loads one when it is asked for by its name; judges none: the contract suites of `tenuto.testing` do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenuto.errors import LauncherNotFound
from tenuto.light import late

if TYPE_CHECKING:
    import importlib.metadata as metadata
else:
    metadata = late("importlib.metadata")

GROUP = "tenuto.launchers"


def plugin_names() -> list[str]:
    """The names of the launchers that are installed besides our own."""
    return sorted({point.name for point in metadata.entry_points(group=GROUP)})


def load_plugin(name: str) -> Any:
    """What an entry point leads to: called with the settings, it makes a launcher.

    Of an external launcher's, its attribute `cluster`, called without arguments, gives the `Cluster` that
    answers for its attempts. Raises `LauncherNotFound` if there is none of that name, or it cannot be loaded.
    """
    for point in metadata.entry_points(group=GROUP, name=name):
        try:
            return point.load()
        except Exception as error:
            raise LauncherNotFound(
                f"the launcher {name!r} ({point.value}) cannot be loaded: {error}"
            ) from error
    installed = ", ".join(plugin_names()) or "none"
    raise LauncherNotFound(f"there is no launcher {name!r}; installed besides our own: {installed}")
