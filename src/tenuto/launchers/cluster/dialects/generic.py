"""Any batch system that takes scripts: its words are in the settings, and nothing else need be known of it.
Without `list` and `end` an attempt is judged by its claim, its beats and its marker alone.
"""

from __future__ import annotations

from tenuto.launchers.cluster.dialect import Dialect


class GenericDialect(Dialect):
    """The words of the settings: `submit` at least."""


DIALECT = GenericDialect
