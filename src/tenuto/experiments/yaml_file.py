"""Experiments written as YAML: what a file says, the line of each key, and overrides of the command line.
Reads text into plain values; classes are looked up and configs made in `grids`.

    name: sweep                        # by default the name of the file
    workspace: main                    # by default that of the settings
    imports: [train]                   # modules, or .py files beside this one
    pre_experiment: setup.py           # a file to run, or module:function to call, before the imports
    task: train.Train
    parameters: {epochs: 10, data: {size: 100}}
    grid_search: {lr: [0.1, 1e-2]}
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import yaml

from tenuto.errors import ExperimentFileError

LONGEST_FILE = 1_000_000
MOST_VALUES = 100_000
DEEPEST = 60


class ExperimentFile(NamedTuple):
    """What a file says, with the overrides applied."""

    path: Path
    name: str
    workspace: str | None
    imports: tuple[str, ...]
    pre_experiment: str | None
    task: str
    parameters: Mapping[str, Any]
    grid_search: Mapping[str, list[Any]]
    """Dotted parameter -> the values to try."""
    places: Mapping[str, str]
    """Dotted key -> ``file:line``, or the override that set it."""
    is_function: bool = False
    """Whether `task` is a function of experimaestro's form, ``run(helper, configuration)``."""

    def where(self, key: str) -> str:
        """``sweep.yaml:7: parameters.lr``, for an error about that key."""
        return _where(self.path, self.places, key)


def read_experiment(path: str | Path, overrides: Iterable[str] = ()) -> ExperimentFile:
    """Reads a file, and overrides such as ``data.size=200``, whose values are read by the rules of YAML.

    The first part of an override is a key of the file or else a parameter; ``parameters.name`` reaches a
    parameter that is called like a key. A parameter of the grid that is overridden keeps that one value.
    """
    path = Path(path)
    content, places = _load(path)
    is_function = "task" not in content and ("file" in content or "module" in content)
    if is_function:
        content = _as_ours(content)
        places = {**{f"parameters.{key}": place for key, place in places.items()}, **places}
    for text in overrides:
        _override(path, content, places, text)
    return _checked(path, content, places)._replace(is_function=is_function)


def _as_ours(content: dict[str, Any]) -> dict[str, Any]:
    """A file of experimaestro's form, by our keys: a key that is not one of its own is a parameter."""
    module = content.get("module")
    if "file" in content:
        module = f"{str(content['file']).removesuffix('.py')}.py"
    ours: dict[str, Any] = {key: content[key] for key in ("pre_experiment", "workspace") if key in content}
    named = {"name": content["id"]} if "id" in content else {}
    rest = {key: value for key, value in content.items() if key not in {*ours, "file", "module"}}
    return {**ours, **named, "imports": [module], "task": "run", "parameters": rest}


def _where(path: Path, places: Mapping[str, str], key: str) -> str:
    known = key
    while known and known not in places:
        known = known.rpartition(".")[0]
    return f"{places.get(known, path)}: {key}" if key else str(path)


# -- YAML, safely and without its surprises ------------------------------------------------------------


class _Loader(yaml.SafeLoader):
    """Plain values only, by the core rules of YAML 1.2.

    By the older rules that PyYAML follows, `1e-3` is text, `no` is false, `1:30` is ninety and `2025-01-01`
    is a date. In a list of learning rates, the first alone has cost people days.
    """

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  as PyYAML declares it
    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Stops at a depth that no experiment has: the effort grows with its square."""
        self._depth += 1
        if self._depth > DEEPEST + 1:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, f"nested more than {DEEPEST} deep", mark)
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(
                    None, None, "a key must be plain text", key.start_mark
                )
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} is there twice", key.start_mark
                )
            seen.add(key.value)
        # Not the parent's, which merges `<<`: a short chain of those doubles a mapping until memory is full.
        return yaml.constructor.BaseConstructor.construct_mapping(self, node, deep)


def _resolver(tag: str, pattern: str, first: str) -> None:
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(rf"(?:{pattern})\Z"), list(first))


_resolver("null", r"~|null|Null|NULL|", "~nN")
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"\Z"), [""])
_resolver("bool", r"true|True|TRUE|false|False|FALSE", "tTfF")
_resolver("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789")
_resolver(
    "float",
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
    "-+.0123456789",
)


def _integer(loader: _Loader, node: yaml.ScalarNode) -> int:
    text = str(node.value)
    base = {"0o": 8, "0x": 16}.get(text[:2], 10)
    return int(text[2:] if base != 10 else text, base)


def _float(loader: _Loader, node: yaml.ScalarNode) -> float:
    return float(re.sub(r"\.(inf|nan)", r"\1", str(node.value).lower()))


_Loader.add_constructor("tag:yaml.org,2002:int", _integer)
_Loader.add_constructor("tag:yaml.org,2002:float", _float)


def _parse(text: str, origin: str) -> tuple[Any, yaml.Node | None]:
    """The value of a text, and the node that knows its lines."""
    loader = None
    try:
        loader = _Loader(text)  # refuses characters that YAML does not have
        node = loader.get_single_node()
        return (None if node is None else loader.construct_document(node)), node
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise ExperimentFileError(f"{origin}{line}: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise ExperimentFileError(f"{origin}: {error}") from None
    except RecursionError:
        raise ExperimentFileError(f"{origin}: nested too deep") from None
    except (ValueError, TypeError) as error:  # a number of 10,000 digits, an unhashable key
        raise ExperimentFileError(f"{origin}: {error}") from None
    finally:
        if loader is not None:
            loader.dispose()


def _load(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    try:
        with open(path, "rb") as stream:
            text = stream.read(LONGEST_FILE + 1).decode("utf-8-sig")
    except OSError as error:
        raise ExperimentFileError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ExperimentFileError(f"{path} is not UTF-8 text, at byte {error.start}") from None
    if len(text) > LONGEST_FILE:
        raise ExperimentFileError(
            f"{path} is larger than {LONGEST_FILE} bytes: describe it in Python instead"
        )
    content, node = _parse(text, str(path))
    if not isinstance(content, dict):
        raise ExperimentFileError(
            f"{path}: expected keys such as task and parameters, but got {_kind(content)}"
        )
    return _plain(path, content), dict(_lines(path, node))


def _plain(path: Path, content: dict[str, Any]) -> dict[str, Any]:
    """A copy without shared parts: with aliases, a small file can stand for more than fits into memory."""
    budget = MOST_VALUES

    def copy(value: Any, depth: int) -> Any:
        nonlocal budget
        budget -= 1
        if budget < 0 or depth > DEEPEST:
            raise ExperimentFileError(
                f"{path}: more than {MOST_VALUES} values, or nested more than {DEEPEST} deep: "
                f"describe it in Python instead"
            )
        if isinstance(value, dict):
            return {key: copy(item, depth + 1) for key, item in value.items()}
        return [copy(item, depth + 1) for item in value] if isinstance(value, list) else value

    copied: dict[str, Any] = copy(content, 0)
    return copied


def _lines(path: Path, root: yaml.Node | None) -> Iterator[tuple[str, str]]:
    """The place of each key; of a part that is shared by an alias, only the first."""
    seen: set[int] = set()
    open_ends = [("", root)]
    while open_ends:
        prefix, node = open_ends.pop()
        if not isinstance(node, yaml.MappingNode) or id(node) in seen:
            continue
        seen.add(id(node))
        for key, value in node.value:
            yield f"{prefix}{key.value}", f"{path}:{key.start_mark.line + 1}"
            open_ends.append((f"{prefix}{key.value}.", value))


# -- overrides ---------------------------------------------------------------------------------------


def _override(path: Path, content: dict[str, Any], places: dict[str, str], text: str) -> None:
    key, sign, given = text.partition("=")
    parts = key.strip().split(".")
    origin = f"-c {text}"
    if not sign or not all(parts):
        raise ExperimentFileError(f"{origin}: write an override as name=value, such as -c lr=0.1")
    value = _plain(path, {"": _parse(given, origin)[0]})[""]
    if parts[0] not in _KEYS:
        parts.insert(0, "parameters")
    table: Any = content
    for step, part in enumerate(parts[:-1], 1):
        if table.get(part) is None:
            table[part] = {}
        table = table[part]
        if not isinstance(table, dict):
            raise ExperimentFileError(
                f"{origin}: {'.'.join(parts[:step])} is {_kind(table)}, which has no parts"
            )
    table[parts[-1]] = value
    places[".".join(parts)] = origin
    grid = content.get("grid_search")
    if parts[0] == "parameters" and isinstance(grid, dict):
        varied = ".".join(parts[1:])
        if varied in _flat(path, places, grid):
            content["grid_search"] = {**_without(grid, parts[1:]), varied: [value]}
            places[f"grid_search.{varied}"] = origin


def _without(grid: dict[str, Any], parts: list[str]) -> dict[str, Any]:
    """The grid less one parameter, however its name was written: dotted, or as nested keys."""
    whole = ".".join(parts)
    kept = {}
    for key, value in grid.items():
        if key == whole:
            continue
        steps = key.split(".")
        if isinstance(value, dict) and parts[: len(steps)] == steps:
            value = _without(value, parts[len(steps) :])
        kept[key] = value
    return kept


# -- what the keys must hold -------------------------------------------------------------------------

_KEYS = {
    "name": "text",
    "workspace": "text",
    "imports": "a list of modules or files",
    "pre_experiment": "a .py file, or module:function",
    "task": "the name of a task, such as train.Train",
    "parameters": "names with values",
    "grid_search": "names with lists of values",
}


def _checked(path: Path, content: dict[str, Any], places: dict[str, str]) -> ExperimentFile:
    def wrong(key: str, problem: str) -> NoReturn:
        raise ExperimentFileError(f"{_where(path, places, key)}: {problem}")

    def text(key: str) -> str | None:
        value = content.get(key)
        if value is not None and not (isinstance(value, str) and value.strip()):
            wrong(key, f"expected {_KEYS[key]}, but got {_kind(value)}")
        return value

    def table(key: str) -> dict[str, Any]:
        value = content.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
            wrong(key, f"expected {_KEYS[key]}, but got {_kind(value)}")
        return value

    for key in content:
        if key not in _KEYS:
            near = difflib.get_close_matches(str(key), [*_KEYS, "parameters"], 1)
            known = f"the keys are {', '.join(_KEYS)}, and parameters go under parameters"
            wrong(str(key), f"there is no such key; {f'did you mean {near[0]!r}?' if near else known}")
    imports = content.get("imports") or []
    imports = [imports] if isinstance(imports, str) else imports
    if not isinstance(imports, list) or not all(isinstance(name, str) and name.strip() for name in imports):
        wrong("imports", f"expected {_KEYS['imports']}, but got {_kind(imports)}")
    task = text("task")
    if task is None:
        raise ExperimentFileError(f"{path}: the key 'task' is missing; write {_KEYS['task']}")
    return ExperimentFile(
        path,
        text("name") or path.stem,
        text("workspace"),
        tuple(imports),
        text("pre_experiment"),
        task,
        table("parameters"),
        _flat(path, places, table("grid_search")),
        places,
    )


def _flat(
    path: Path, places: Mapping[str, str], grid: dict[str, Any], prefix: str = ""
) -> dict[str, list[Any]]:
    """``{data: {size: [1, 2]}}`` as ``{"data.size": [1, 2]}``."""
    found: dict[str, list[Any]] = {}
    for name, values in grid.items():
        dotted = f"{prefix}{name}"
        where = _where(path, places, f"grid_search.{dotted}")
        inner = _flat(path, places, values, f"{dotted}.") if isinstance(values, dict) else {dotted: values}
        for key, value in inner.items():
            if not isinstance(value, list) or not value:
                raise ExperimentFileError(
                    f"{where}: expected a list of values to try, but got {_kind(value)}; "
                    f"a single value goes under parameters"
                )
            if key in found:
                raise ExperimentFileError(f"{where}: {key} is varied twice")
            found[key] = value
    return found


def _kind(value: Any) -> str:
    words = {dict: "keys with values", list: "a list", type(None): "nothing"}
    if isinstance(value, list) and not value:
        return "an empty list"
    return words.get(type(value)) or f"{value!r:.60} ({type(value).__name__})"
