"""One tree of settings, and where each value comes from: file < environment < arguments.
Kinds of values are in `declaration`, the settings in `tree`, the places of values in `loader`.
"""

from tenuto.settings.loader import load_settings, process_environment, user_directory
from tenuto.settings.tree import SLURM, CarbonSettings, Settings, expanded, state_directory
from tenuto.settings.urls import Url

__all__ = [
    "SLURM",
    "CarbonSettings",
    "Settings",
    "Url",
    "expanded",
    "load_settings",
    "process_environment",
    "state_directory",
    "user_directory",
]
