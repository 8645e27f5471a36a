"""One tree of settings, and where each value comes from: file < environment < arguments.
What may be said of a value is in `kinds`, what there is in `tree`, where it is written in `loader`.
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
