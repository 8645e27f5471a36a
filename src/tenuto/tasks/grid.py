"""Grids: one template, several values for some parameters, all combinations."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from tenuto.errors import ParameterError
from tenuto.tasks.arguments import refused
from tenuto.tasks.base import ConfigBase, caller, class_name, is_config
from tenuto.tasks.config import Config, copyconfig
from tenuto.tasks.tags import add_tag

C = TypeVar("C", bound=Config)


def grid(template: type[C] | C, vary: Mapping[str, Iterable[Any]], **fixed: Any) -> list[C]:
    """The configs for all combinations of the values in `vary`, the last name varying fastest.

    Names may be dotted (``"model.layers"``) to vary a config inside the template. What
    varies is tagged by the last part of its name, or by all of it where two would be equal.
    `template`: a class, or a config that is copied; `fixed`: values that all of them have. Raises
    `ParameterError` for a name without values, or one that leads through no config.
    """
    _check(template, vary, fixed)
    base: C = template.C(**fixed) if isinstance(template, type) else copyconfig(template, **fixed)
    choices = {name: _values(base, name, values) for name, values in vary.items()}
    labels = _labels(choices)
    configs = []
    for combination in itertools.product(*choices.values()):
        config = copyconfig(base)
        for name, value in zip(choices, combination, strict=True):
            _set(config, name.split("."), value)
            add_tag(
                config, labels[name], value if isinstance(value, str | int | float | None) else _named(value)
            )
        configs.append(config)
    return configs


def _check(template: Any, vary: Any, fixed: Mapping[str, Any]) -> None:
    if not (issubclass(template, Config) if isinstance(template, type) else is_config(template)):
        raise refused("grid(template)", "a Config class, or a config", template)
    if not isinstance(vary, Mapping) or not all(isinstance(name, str) for name in vary):
        raise refused("grid(vary)", 'a dict such as {"lr": [0.1, 0.01]}', vary)
    for name in vary.keys() & fixed.keys():
        raise ParameterError(f"grid: {name!r} both varies and is fixed, at {caller()}: give it once")


def _values(base: ConfigBase, name: str, values: Iterable[Any]) -> list[Any]:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise ParameterError(
            f"grid of {class_name(base)}: {name!r} needs a list or range of values, not {values!r}, "
            f"at {caller()}"
        )
    found = list(values)
    if not found:
        raise ParameterError(f"grid of {class_name(base)}: {name!r} has no values, at {caller()}")
    return found


def _labels(choices: Mapping[str, Any]) -> dict[str, str]:
    short = {name: name.rpartition(".")[2] for name in choices}
    taken = list(short.values())
    return {name: label if taken.count(label) == 1 else name for name, label in short.items()}


def _set(config: Any, path: list[str], value: Any) -> None:
    """Sets a parameter at a path; the configs on the way are copied, for they are shared."""
    for step in path[:-1]:
        inner = config.__dict__.get(step)
        if not is_config(inner):
            raise ParameterError(
                f"grid: {'.'.join(path)!r} leads through {class_name(config)}.{step}, which holds no config, "
                f"at {caller()}"
            )
        copied = copyconfig(inner)
        setattr(config, step, copied)
        config = copied
    setattr(config, path[-1], value)


def _named(value: Any) -> str:
    return class_name(value) if is_config(value) else str(value)
