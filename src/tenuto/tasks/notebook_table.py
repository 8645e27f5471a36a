"""Configs in a notebook: their parameters as a table, the configs inside to unfold."""

from __future__ import annotations

from typing import Any

from tenuto.errors import TenutoError
from tenuto.tasks.base import ConfigBase, brief, class_name, is_config
from tenuto.tasks.html import Html, escaped, folded, joined, table
from tenuto.tasks.identity import identity
from tenuto.tasks.schema import schema_of
from tenuto.tasks.tags import tags

_MOST_CONFIGS = 40
_MOST_ITEMS = 10


def config_html(config: Any) -> str:
    """A config, or a live object, as a small table."""
    return str(_ConfigTable().config(config, is_root=True))


class _ConfigTable:
    """One table under way; of a large graph it shows the beginning."""

    def __init__(self) -> None:
        self._shown = 0

    def config(self, config: Any, *, is_root: bool = False) -> Html:
        self._shown += 1
        values = vars(config)
        rows: list[tuple[object, object]] = [
            (name, self._value(values[name])) for name in schema_of(type(config)).parameters if name in values
        ]
        if is_root and is_config(config):
            found = ", ".join(f"{name}={value}" for name, value in tags(config).items())
            rows += [("tags", found)] if found else []
            job = config._state.job
            rows += [("job", joined(job.state.name, job.path))] if job is not None else []
        return table(_title(config, is_root=is_root), rows)

    def _value(self, value: Any) -> Html:
        if isinstance(value, ConfigBase):
            title = _title(value)
            if self._shown >= _MOST_CONFIGS:
                return escaped(f"{title} …")
            return folded(title, self.config(value))
        items = list(value.values() if isinstance(value, dict) else value) if _is_container(value) else []
        if not any(isinstance(item, ConfigBase) for item in items):
            return escaped(brief(value))
        shown = [self._value(item) for item in items[:_MOST_ITEMS]]
        more = len(items) - len(shown)
        return joined(*shown, f"and {more} more") if more else joined(*shown)


def _is_container(value: Any) -> bool:
    return isinstance(value, list | tuple | set | dict)


def _title(config: Any, *, is_root: bool = False) -> str:
    name = f"{class_name(config)}{'.C' if is_config(config) else ''}"
    if not is_root:
        return name
    try:
        return f"{name} {identity(config)[:12]}"
    except (TenutoError, TypeError, AttributeError):  # not complete yet, or a live object
        return name
