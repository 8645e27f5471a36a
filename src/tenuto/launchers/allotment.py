"""What a job gets of its host by its requirement: slots, limits, variables.
Pure; the launcher and the runner put it into effect.
"""

from __future__ import annotations

from collections.abc import Mapping

from tenuto.launchers.instructions import Limits
from tenuto.launchers.requirements_values import Alternative

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
"""Each tells a numeric library how many threads to use; unset, it takes every core of the machine."""


def limits_with(limits: Limits, alternative: Alternative) -> Limits:
    """The limits of a job; what its requirement says holds in place of the settings."""
    if alternative.duration_s is not None:
        limits = limits._replace(walltime_s=alternative.duration_s)
    if alternative.memory_bytes is not None:
        limits = limits._replace(memory_bytes=alternative.memory_bytes)
    return limits


def thread_variables(alternative: Alternative, *given: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that hold a job's libraries to its cores, but for those of the user."""
    if alternative.cores is None:
        return {}
    return {
        name: str(alternative.cores)
        for name in THREAD_VARIABLES
        if not any(name in variables for variables in given)
    }
