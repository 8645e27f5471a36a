"""A task that loads nothing but what every job loads, and tells where that came from."""

from __future__ import annotations

import sys
from typing import Any

from tenuto import Param, Task


class Origins(Task):
    """Tells where modules of its process came from."""

    number: Param[int]

    def execute(self) -> dict[str, Any]:
        named = {name: type(getattr(module, "__loader__", None)) for name, module in sys.modules.items()}
        loaders = {name: loader.__name__ for name, loader in named.items()}
        others = [name for name, loader in loaders.items() if loader != "_BundleLoader"]
        return {
            "others": sorted(name for name in others if name.split(".")[0] == "tenuto"),
            "typing": loaders["typing"],
            "finders": [type(finder).__name__ for finder in sys.meta_path],
        }
