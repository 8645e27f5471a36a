"""Grids: one template, several values for some parameters: all combinations, pairs, or a sample of them."""

from __future__ import annotations

import random
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar, overload

from tenuto.errors import ParameterError
from tenuto.tasks.arguments import refused, whole_number
from tenuto.tasks.base import ConfigBase, brief, caller, class_name, is_config
from tenuto.tasks.config import Config, copyconfig
from tenuto.tasks.schema import schema_of
from tenuto.tasks.seeds import SEED, give_seed
from tenuto.tasks.tags import add_tag, plain

if TYPE_CHECKING:
    from tenuto.tasks.functions import FunctionTask, TaskFunction

C = TypeVar("C", bound=Config)
R = TypeVar("R")


@overload
def grid(
    template: type[C] | C,
    vary: Mapping[str, Iterable[Any]] = ...,
    *,
    zip: bool | Sequence[str] | Sequence[Sequence[str]] = ...,
    sample: int | None = ...,
    sample_seed: int = ...,
    seeds: int | Iterable[int] | None = ...,
    **fixed: Any,
) -> list[C]: ...
@overload
def grid(
    template: TaskFunction[..., R],
    vary: Mapping[str, Iterable[Any]] = ...,
    *,
    zip: bool | Sequence[str] | Sequence[Sequence[str]] = ...,
    sample: int | None = ...,
    sample_seed: int = ...,
    seeds: int | Iterable[int] | None = ...,
    **fixed: Any,
) -> list[FunctionTask[R]]: ...
def grid(  # type: ignore[misc]
    template: type[C] | C,
    vary: Mapping[str, Iterable[Any]] = {},
    *,
    zip: bool | Sequence[str] | Sequence[Sequence[str]] = False,
    sample: int | None = None,
    sample_seed: int = 0,
    seeds: int | Iterable[int] | None = None,
    **fixed: Any,
) -> list[C]:
    """The configs for all combinations of the values in `vary`, the last name varying fastest.

    Names may be dotted (``"model.layers"``) to vary a config inside the template, which is made where it has
    none yet. What varies is tagged by the last part of its name, or by all of it where two would be equal; a
    config by its class, and by what tells it from others of the class.

    `template`: a class, a function that is a task, or a config that is copied; `fixed`: values that all of
    them have. `zip`: True, or the names that vary together: the first values of each, then the second.
    `sample`: so many of the combinations, chosen by `sample_seed`, always the same. `seeds`: each combination
    with the seeds 0 to ``seeds - 1``, or with these, tagged ``seed``. Raises `ParameterError` for a name
    without values, or one that leads through no config.
    """
    _check(template, vary, fixed)
    if seeds is not None and (SEED in vary or SEED in fixed):
        raise ParameterError(f"grid: {SEED!r} is given, and seeds= too, at {caller()}: give one of the two")
    given = {name: _made(value) for name, value in fixed.items()}
    base: C = template.C(**given) if isinstance(template, type) else copyconfig(template, **given)
    choices = {name: _values(base, name, values) for name, values in vary.items()}
    labels, tags = _labels(choices), {name: _tag_values(values) for name, values in choices.items()}
    chosen_seeds = _seeds(base, seeds)
    configs = []
    sample_seed = whole_number(sample_seed, "grid(sample_seed=)")
    for places in _combinations(_groups(choices, zip), sample, sample_seed):
        config = copyconfig(base)
        for name in sorted(choices, key=lambda name: name.count(".")):  # a config before what varies in it
            _set(config, name.split("."), choices[name][places[name]])
        for name, place in ((name, places[name]) for name in choices):
            add_tag(config, labels[name], tags[name][place])
        configs += [config] if chosen_seeds is None else [_seeded(config, seed) for seed in chosen_seeds]
    return configs


def _check(template: Any, vary: Any, fixed: Mapping[str, Any]) -> None:
    if not (issubclass(template, Config) if isinstance(template, type) else is_config(template)):
        raise refused("grid(template)", "a Config class, or a config", template)
    if not isinstance(vary, Mapping) or not all(isinstance(name, str) for name in vary):
        raise refused("grid(vary)", 'a dict such as {"lr": [0.1, 0.01]}', vary)
    for name in vary.keys() & fixed.keys():
        raise ParameterError(f"grid: {name!r} both varies and is fixed, at {caller()}: give it once")


def _made(value: Any) -> Any:
    """A Config class stands for a config of it with no values yet."""
    return value.C() if isinstance(value, type) and issubclass(value, Config) else value


def _values(base: ConfigBase, name: str, values: Iterable[Any]) -> list[Any]:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise ParameterError(
            f"grid(vary=) of {class_name(base)}: {name!r} needs a list or range of values, not {values!r}, "
            f"at {caller()}"
        )
    found = [_made(value) for value in values]
    if not found:
        raise ParameterError(f"grid of {class_name(base)}: {name!r} has no values, at {caller()}")
    return found


# -- which combinations ------------------------------------------------------------------------------


def _groups(choices: Mapping[str, Sequence[Any]], together: Any) -> list[tuple[list[str], int]]:
    """The names that vary together, and how many values they have; in the order of the first of each."""
    given = together
    if isinstance(together, bool):
        together = [list(choices)] if together else []
    elif isinstance(together, Iterable) and not isinstance(together, str | bytes):
        together = list(together)
        if all(isinstance(name, str) for name in together):
            together = [together]
    if not isinstance(together, list) or not all(isinstance(names, list | tuple) for names in together):
        raise refused("grid(zip=)", 'True, or names such as ["lr", "size"]', given)
    named: dict[str, list[str]] = {}
    for names in map(list, together):
        for name in names:
            if name not in choices or name in named:
                problem = "does not vary" if name not in choices else "is named twice"
                raise ParameterError(f"grid(zip=): {name!r} {problem}, at {caller()}")
            named[name] = names
            if len(choices[name]) != len(choices[names[0]]):
                raise ParameterError(
                    f"grid(zip=): {names[0]!r} has {len(choices[names[0]])} values and {name!r} has "
                    f"{len(choices[name])}, at {caller()}: give as many to each"
                )
    alone = ([name] for name in choices if name not in named)
    groups = [*alone, *{id(names): names for names in named.values()}.values()]
    order = list(choices)
    groups.sort(key=lambda names: min(map(order.index, names)))
    return [(names, len(choices[names[0]])) for names in groups]


def _combinations(
    groups: Sequence[tuple[list[str], int]], sample: Any, seed: Any
) -> Iterator[dict[str, int]]:
    """For each combination the place of the value of each name; all of them, or a sample in their order."""
    count = prod(size for _, size in groups)
    numbers: Iterable[int] = range(count)
    if sample is not None:
        if whole_number(sample, "grid(sample=)", least=1) > count:
            raise ParameterError(f"grid(sample={sample}): there are only {count} combinations, at {caller()}")
        numbers = sorted(random.Random(seed).sample(range(count), sample))
    for number in numbers:
        places: dict[str, int] = {}
        for names, size in reversed(groups):
            number, place = divmod(number, size)
            places |= dict.fromkeys(names, place)
        yield places


def _seeds(base: ConfigBase, given: Any) -> list[int] | None:
    if given is None:
        return None
    if not type(base).__is_task__:
        raise ParameterError(
            f"grid(seeds=): {class_name(base)} is no task, at {caller()}: only jobs have seeds"
        )
    if hasattr(given, "__index__") and not hasattr(given, "__len__"):
        return list(range(whole_number(given, "grid(seeds=)", least=1)))
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise refused("grid(seeds=)", "a number of seeds, or a list of them", given)
    found = list(given)
    if not found:
        raise ParameterError(f"grid(seeds=) has no values, at {caller()}")
    return found


def _seeded(config: C, seed: int) -> C:
    copied = copyconfig(config)
    give_seed(copied, seed, "grid(seeds=)")
    add_tag(copied, "seed", seed)
    return copied


# -- names and values --------------------------------------------------------------------------------


def _labels(choices: Mapping[str, Any]) -> dict[str, str]:
    short = {name: name.rpartition(".")[2] for name in choices}
    taken = list(short.values())
    return {name: label if taken.count(label) == 1 else name for name, label in short.items()}


def _tag_values(values: Sequence[Any]) -> list[Any]:
    """The tags of the values of one name: plain ones as they are, configs by class and by what differs."""
    classes = [class_name(value) if is_config(value) else None for value in values]
    return [
        _plain_text(plain(value))
        if name is None
        else _config_text(value, [other for other, kind in zip(values, classes, strict=True) if kind == name])
        for value, name in zip(values, classes, strict=True)
    ]


def _plain_text(value: Any) -> Any:
    return value if isinstance(value, str | int | float | None) else str(value)


def _config_text(config: Any, alike: Sequence[Any]) -> str:
    names = [
        name
        for name in schema_of(type(config)).parameters
        if len({brief(other.__dict__.get(name)) for other in alike}) > 1
    ]
    shown = ",".join(f"{name}={_named(config.__dict__.get(name))}" for name in names)
    return f"{class_name(config)}({shown})" if shown else class_name(config)


def _set(config: Any, path: list[str], value: Any) -> None:
    """Sets a parameter at a path; the configs on the way are copied, for they are shared."""
    for step in path[:-1]:
        inner = config.__dict__.get(step)
        copied = copyconfig(inner) if is_config(inner) else _inner(config, step, path)
        setattr(config, step, copied)
        config = copied
    setattr(config, path[-1], value)


def _inner(config: Any, step: str, path: list[str]) -> Any:
    """A config with no values yet, for a parameter that takes one class."""
    parameter = schema_of(type(config)).parameters.get(step)
    allowed = alternatives(parameter.declaration.annotation) if parameter is not None else []
    kinds = [one for one in allowed if isinstance(one, type) and issubclass(one, Config)]
    if len(kinds) != 1:
        raise ParameterError(
            f"grid: {'.'.join(path)!r} leads through {class_name(config)}.{step}, which holds no config, "
            f"at {caller()}: give it one, as in {step}=Model.C()"
        )
    return kinds[0].C()


def alternatives(annotation: Any) -> list[Any]:
    """The types that an annotation allows, without its wrappers."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return alternatives(typing.get_args(annotation)[0])
    if origin is typing.Union or origin is types.UnionType:
        return [inner for option in typing.get_args(annotation) for inner in alternatives(option)]
    return [annotation]


def _named(value: Any) -> str:
    return class_name(value) if is_config(value) else str(value)
