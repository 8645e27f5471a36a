"""Any batch system that takes scripts: its words are in the settings, and nothing else need be known of it.
Without `list` and `end` an attempt is judged by claim, beats and marker, and by the exit code of its script.
"""

from __future__ import annotations

from tenuto.launchers.cluster.dialect import Dialect
from tenuto.settings.clusters import ClusterSettings


class GenericDialect(Dialect):
    """The words of the settings: `submit` at least."""

    def __init__(self, name: str, settings: ClusterSettings) -> None:
        super().__init__(name, settings)
        # A signal would reach the shell that waits for the runner, and end that alone.
        self.keeps_shell = self.leaves_code = not (self.end_words or self.signal_words or self.limit_words)


DIALECT = GenericDialect
