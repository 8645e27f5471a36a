"""The doors that a monitor of a workspace opens: experiments always, others where they are used."""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.experiments.source import ExperimentSource
from tenuto.experiments.view import WorkspaceView
from tenuto.lifecycle.source import Source
from tenuto.settings import Settings


def open_doors(view: WorkspaceView, settings: Settings) -> Sequence[Source]:
    """The sources of the open doors."""
    return [ExperimentSource(view, settings)]
