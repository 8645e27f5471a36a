"""pyribs, numpy and Optuna, loaded by the first test that compares with them; asked for as `oracle.np`.

A test module must not name them: pytest looks at every name of a module when it collects it.

pyribs runs without its compiler, unless the whole sizes run: compiling takes ten seconds a process.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tenuto.light import late

if TYPE_CHECKING:
    import numpy as np
    import optuna
    from ribs import archives, emitters, schedulers

WHOLE = os.environ.get("HYPOTHESIS_PROFILE") == "prove"
if not WHOLE:
    os.environ.setdefault("NUMBA_DISABLE_JIT", "1")

if not TYPE_CHECKING:
    np = late("numpy")
    optuna = late("optuna")
    archives = late("ribs.archives")
    emitters = late("ribs.emitters")
    schedulers = late("ribs.schedulers")
