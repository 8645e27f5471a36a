"""Whether and how the energy of jobs is measured: what the settings ask for, as far as it can be had.
Loads no tracker; it only asks whether there is one.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

from tenuto.launchers.instructions import CODECARBON, CarbonPlan
from tenuto.settings import CarbonSettings


def codecarbon_is_installed() -> bool:
    """Whether the extra `carbon` is there."""
    return find_spec("codecarbon") is not None


def carbon_plan(settings: CarbonSettings) -> CarbonPlan | None:
    """How to measure; None if it is not wanted, or nothing is there to measure with."""
    if not settings.enabled or not (settings.tracker or codecarbon_is_installed()):
        return None
    if not settings.tracker:
        return CarbonPlan(settings.after_s, settings.every_s, settings.country, CODECARBON)
    # As Python itself begins its path: with the directory of the script, or with the working directory.
    beside = os.path.abspath(sys.path[0] or ".") if sys.path else ""
    return CarbonPlan(settings.after_s, settings.every_s, settings.country, settings.tracker, beside)
