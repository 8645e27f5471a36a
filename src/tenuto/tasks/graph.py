"""The graph that configs form: edges, order, cycles. No recursion, whatever its depth.
It follows edges; it changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from tenuto.errors import ConfigCycle
from tenuto.light import pattern, sha256
from tenuto.tasks.base import ConfigBase, class_name, is_config, key_text
from tenuto.tasks.schema import Schema, schema_of

_UNSAFE = pattern(r"[^A-Za-z0-9_-]+")
_PLAIN_LABEL = pattern(r"[A-Za-z0-9_]{1,60}(\[\d{1,9}\]|\['[A-Za-z_][A-Za-z0-9_-]{0,60}'\])*")

Edge = tuple[str, ConfigBase]
"""How a config is reached from its parent (``data``, ``layers[2]``), and the config."""


def edges(config: ConfigBase) -> Iterator[Edge]:
    """The configs that one config holds in its values, and its origin."""
    schema: Schema = type(config).__schema__  # type: ignore[attr-defined]
    values = config.__dict__
    for name in schema.config_names:
        value = values.get(name)
        if value is None:
            continue
        if isinstance(value, ConfigBase):
            yield name, value
        elif not isinstance(value, str | int | float):
            yield from configs_in(value, name)
    state = config._state
    if state.origin is not None:
        yield "<origin>", state.origin
    for position, task in enumerate(state.init_tasks):
        yield f"<init_tasks>[{position}]", task


def is_alone(config: ConfigBase) -> bool:
    """True for a config of a class that has no configs in it, and that came from none: most have."""
    schema: Schema = type(config).__schema__  # type: ignore[attr-defined]
    state = config._state
    return not schema.config_names and state.origin is None and not state.init_tasks


def configs_in(value: Any, label: str = "") -> Iterator[Edge]:
    """The configs inside a value, with their place in it."""
    if is_config(value):
        yield label, value
    elif isinstance(value, list | tuple | set):
        items = sorted(value, key=_digest_or_nothing) if isinstance(value, set) else value
        for position, item in enumerate(items):
            yield from configs_in(item, f"{label}[{position}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from configs_in(item, f"{label}[{key_text(key)}]")


def _digest_or_nothing(item: Any) -> bytes:
    """What orders the configs of a set alike in every process, once they were hashed."""
    return item._state.digest or b"" if is_config(item) else b""


def postorder(root: ConfigBase, skip: Callable[[ConfigBase], bool]) -> Iterator[ConfigBase]:
    """Every config below and including root, children first, each once.

    What `skip` accepts is left out with all that lies below it.
    """
    if skip(root):
        return
    if is_alone(root) or all(skip(child) for _, child in edges(root)):
        yield root
        return
    path: list[ConfigBase] = [root]
    labels: list[str] = []
    pending = [edges(root)]
    on_path = {id(root)}
    seen: set[int] = set()
    while path:
        for label, child in pending[-1]:
            key = id(child)
            if key in on_path:
                raise ConfigCycle(_describe_cycle(path, [*labels, label], child))
            if key not in seen and not skip(child):
                path.append(child)
                labels.append(label)
                pending.append(edges(child))
                on_path.add(key)
                break
        else:
            done = path.pop()
            pending.pop()
            if labels:
                labels.pop()
            on_path.discard(id(done))
            seen.add(id(done))
            yield done


def folders(root: ConfigBase) -> Iterator[tuple[ConfigBase, str]]:
    """The configs with generated paths that run in root's job, each with its folder there.

    Root's own paths lie in the job directory itself (folder ``""``), those of a config
    inside it below ``out/``, by the shortest way from root. Tasks with a job of their own
    keep their paths there, and so do the parts of such a task that it gave out.
    """
    reached: dict[int, tuple[ConfigBase, str] | None] = {id(root): None}
    for config in _inside(root, reached):
        if schema_of(type(config)).generators:
            yield config, _folder(config, reached)


def folder_in(root: ConfigBase, config: ConfigBase) -> str | None:
    """The folder of a config in root's job; None if it is no part of that job."""
    reached: dict[int, tuple[ConfigBase, str] | None] = {id(root): None}
    is_inside = any(one is config for one in _inside(root, reached))
    return _folder(config, reached) if is_inside else None


def _inside(root: ConfigBase, reached: dict[int, tuple[ConfigBase, str] | None]) -> Iterator[ConfigBase]:
    """The configs of root's job, the nearest first; fills in how each config is reached."""
    queue = [root]
    for config in queue:
        yield config
        for label, child in edges(config):
            if id(child) not in reached and child._state.job is None and not child._state.is_given_out:
                reached[id(child)] = config, label
                queue.append(child)


def _folder(config: ConfigBase, reached: dict[int, tuple[ConfigBase, str] | None]) -> str:
    steps: list[str] = []
    step = reached[id(config)]
    while step is not None:
        parent, label = step
        steps.append(_folder_name(label))
        step = reached[id(parent)]
    return "/".join(["out", *reversed(steps)]) if steps else ""


def _folder_name(label: str) -> str:
    """``layers.2`` for ``layers[2]``; two labels never share a name, or two configs would share files."""
    if len(label) <= 120 and _PLAIN_LABEL.fullmatch(label):
        return re.sub(r"\['?", ".", label).replace("'", "").replace("]", "")
    readable = _UNSAFE.sub("_", label).strip("_")[:60]
    return f"{readable}~{sha256(label.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def _describe_cycle(path: list[ConfigBase], labels: list[str], again: ConfigBase) -> str:
    start = next(position for position, config in enumerate(path) if config is again)
    steps = labels[start:]
    shown = steps if len(steps) <= 12 else [*steps[:6], "…", *steps[-5:]]
    return (
        f"{class_name(again)} contains itself, through {class_name(again)}.{'.'.join(shown)}: "
        f"a config cannot be part of its own value"
    )
