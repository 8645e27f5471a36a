"""`tenuto resume`."""

from __future__ import annotations

from tenuto.cli.commands.pause import steering
from tenuto.jobs.source import Action

command = steering(Action.RESUME, "is resumed", "Let the paused search GROUP continue.")
