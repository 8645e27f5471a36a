"""Where a runner's interpreter begins; it loads as little as it can, since every job waits for it.

Arguments: DIRECTORY SCRIPT_NAME NONCE PYTHON, then descriptors: LOCK DESCENDANTS READY [TOKEN...];
or, for a parent that forks runners: --warm SOCKET PID, the pid being that of the launcher;
or, for a payload in a fresh interpreter: --payload and what `begin` says.
"""

import gc
import os
import sys
from importlib import import_module
from importlib.machinery import PathFinder

gc.disable()  # nothing that a runner loads is garbage; a Python task turns it on again

# A supervisor needs a tenth of what `import tenuto` loads. So the package is put up bare, without running its
# `__init__`; the payload of a Python task finishes it (see `task.complete_package`).
_ROOT = __file__.rpartition("/tenuto/launchers/")[0]
_SPEC = PathFinder.find_spec("tenuto", [_ROOT])
assert _SPEC is not None, "tenuto lies where this file lies"
_PACKAGE = type(sys)("tenuto")
_PACKAGE.__spec__, _PACKAGE.__loader__ = _SPEC, _SPEC.loader
_PACKAGE.__file__, _PACKAGE.__path__ = _SPEC.origin, list(_SPEC.submodule_search_locations or ())
sys.modules["tenuto"] = _PACKAGE

if sys.argv[1] == "--payload":
    sys.exit(import_module("tenuto.launchers.runner.begin").be_payload(*sys.argv[2:]))

from tenuto.launchers.runner.attempt import Inherited, run  # noqa: E402  the bare package had to come first

if sys.argv[1] == "--warm":
    serve = import_module("tenuto.launchers.warm.serving").serve
    inherited = serve(*map(int, sys.argv[2:]))  # returns in each child that it forks
    if inherited is None:
        os._exit(0)
else:
    directory, script_name, nonce, python, *descriptors = sys.argv[1:]
    lock, descendants, ready, *tokens = map(int, descriptors)
    inherited = Inherited(directory, script_name, nonce, python, lock, descendants, ready, tuple(tokens))
runner = os.getpid()
exit_code = run(inherited)
if os.getpid() == runner:
    os._exit(exit_code)  # all is written, and to tear down an interpreter takes as long as to start one
if inherited.preloaded is not None:
    import_module("tenuto.launchers.runner.leaving").leave(exit_code, known=inherited.preloaded.modules)
sys.exit(exit_code)
