"""Where the interpreter of a runner, of a parent that forks them, or of a fresh payload begins.
It continues in `start`: of this file Python keeps no compiled form, so every job pays for each of its lines.
"""

import gc
import sys
from _frozen_importlib_external import PathFinder  # `importlib` loads more

gc.disable()  # nothing that a runner loads is garbage; a Python task turns it on again

# A supervisor needs a tenth of what `import tenuto` loads. So the package is put up bare, without running its
# `__init__`; the payload of a Python task finishes it (see `task.complete_package`).
_SPEC = PathFinder.find_spec("tenuto", [__file__.rpartition("/tenuto/launchers/")[0]])
assert _SPEC is not None, "tenuto lies where this file lies"
_PACKAGE = type(sys)("tenuto")
_PACKAGE.__spec__, _PACKAGE.__loader__ = _SPEC, _SPEC.loader
_PACKAGE.__file__, _PACKAGE.__path__ = _SPEC.origin, list(_SPEC.submodule_search_locations or ())
sys.modules["tenuto"] = _PACKAGE

from tenuto.launchers.runner.start import start  # noqa: E402  the bare package had to come first

start(*sys.argv[1:])
