"""Lets `import experimaestro` find Tenuto's names, in a script and its jobs: to try before one edits.
Found by that name too, once `install` has put the folder above on the import path. No code of theirs is here.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

_NAME = "experimaestro"
_PAGE = "see docs/from-experimaestro.md"
_ELSEWHERE = {
    "Launcher": "tenuto.launchers.protocols",
    "ExperimentInfo": "tenuto.experiments.run_info",
    "DirectLauncher": "tenuto.launchers.warm",
}
_PLAIN = {"Annotated": Annotated, "Any": Any, "Path": Path}
_MODULES = frozenset(
    "annotations connectors connectors.local core core.arguments core.objects core.types exceptions "
    "generators launcherfinder launchers launchers.direct launchers.slurm launchers.slurm.base notifications "
    "scheduler scheduler.base scheduler.experiment scheduler.workspace settings tokens typingutils "
    "utils".split()
)
"""The modules of that package from which scripts import names; which name is in which is not checked."""


def install() -> None:
    """Have `import experimaestro` find Tenuto's names from here on, in jobs too; nothing else is changed.

    Raises `ImportError` if the real package was imported before.
    """
    known = sys.modules.get(_NAME)
    if known is not None and getattr(known, "__file__", None) != __file__:
        raise ImportError(
            f"{_NAME} was imported before, from {getattr(known, '__file__', None)}: call "
            "tenuto.compat.experimaestro.install() before anything imports it"
        )
    folder = str(Path(__file__).parents[1])
    if folder not in sys.path:
        sys.path.insert(0, folder)
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != folder]
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, *paths])


def _found(name: str) -> Any:
    if name in _PLAIN:
        return _PLAIN[name]
    if name == "__all__" or not name.startswith("_"):
        for module in ("tenuto", "tenuto.errors", _ELSEWHERE.get(name, "tenuto")):
            found = getattr(import_module(module), name, None)
            if found is not None:
                return found
    if name.startswith("_") or name in _MODULES:
        raise AttributeError(name)
    raise ImportError(f"Tenuto has no {name!r} of {_NAME}: {_PAGE}")


class _Modules(MetaPathFinder, Loader):
    """Finds the modules of the package: each has all of its names."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        head, _, rest = fullname.partition(".")
        if head != _NAME or not rest:
            return None
        if rest not in _MODULES:
            raise ModuleNotFoundError(f"Tenuto has no module {fullname}: {_PAGE}", name=fullname)
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        module.__getattr__ = _found  # type: ignore[method-assign]


if __name__ == _NAME:
    __getattr__ = _found
    sys.meta_path.insert(0, _Modules())
