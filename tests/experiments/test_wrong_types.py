"""Owns the check of arguments: a public callable refuses what the annotation of a parameter excludes.

The calls are made from the signatures. A refusal names the parameter, and comes before a file is written.
"""

from __future__ import annotations

import collections.abc
import enum
import inspect
import os
import types
import typing
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenuto
import tenuto.search
from tenuto import Config, Param, Task, experiment
from tenuto.errors import TenutoError
from tenuto.settings import Settings
from tenuto.tasks.base import ConfigBase

INNER = {
    "Scheduler": "takes jobs and owners of the doors: no script calls it with values of its own",
    "Job": "is made by `submit()`",
    "Listener": "is called by the scheduler, and written by people",
    "SubmitHook": "is called by an experiment, and written by people",
    "OutputKey": "is given to callbacks",
    "Match": "is what `Requirement.match` returns",
    "Candidate": "is what a search returns",
    "Elite": "is what an archive returns",
    "SearchResult": "is what a search returns",
    "Proposal": "is checked when the search takes it from its sampler",
    "Outcome": "is checked when the search reads it: what cannot be used is a failure of the candidate",
    "EvolutionScheduler": "takes parts of an open search",
    "JobScheduler": "takes parts of an open search",
    "MapElitesSampler": "takes parts of an open search",
    "ClusterLauncher": "its methods are called by the scheduler",
    "SlurmLauncher": "its methods are called by the scheduler",
    "SpawnLauncher": "its methods are called by the scheduler",
    "PlainOwner": "its method is called by the scheduler",
    "tqdm": "takes what the other tqdm takes",
}
"""Public classes whose methods the doors call, not people; the constructors of some are looked at."""
CONSTRUCTED = {"ClusterLauncher", "SlurmLauncher", "SpawnLauncher", "PlainOwner"}


class Net(Config):
    width: Param[int] = 1


class Fit(Task):
    x: Param[int] = 0
    net: Param[Net] = Net.C()

    def execute(self) -> int:
        return self.x

    def out(self, dep: Any) -> None: ...


class Wrong:
    """Is of no type that a parameter of ours has."""


POOL: tuple[Any, ...] = (
    5,
    "text",
    b"bytes",
    1.5,
    True,
    None,
    Wrong(),
    Wrong,
    [Wrong()],
    {"k": Wrong()},
    {5: 5},
)


def fits(annotation: Any, value: Any) -> bool:
    """Whether a value may be of an annotation; in doubt it may."""
    if annotation in (Any, object) or isinstance(annotation, typing.ParamSpec):
        return True
    if annotation in (None, type(None)):
        return value is None
    if isinstance(annotation, typing.TypeVar):
        return fits(annotation.__bound__ or Any, value)
    origin, inner = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return any(fits(one, value) for one in inner)
    if origin is typing.Literal:
        return value in inner
    if origin is collections.abc.Callable:
        return callable(value)
    if origin is type:
        return isinstance(value, type)
    if origin is float:
        return type(value) in (int, float)
    if origin in (int, str, bool, bytes):
        return type(value) is origin
    if inspect.isclass(origin) and issubclass(origin, collections.abc.Mapping):
        return isinstance(value, dict) and (
            not inner or all(fits(inner[0], key) and fits(inner[1], one) for key, one in value.items())
        )
    if inspect.isclass(origin) and issubclass(origin, collections.abc.Iterable) and inner:
        is_text = isinstance(value, str | bytes)
        return not is_text and isinstance(value, origin) and all(fits(inner[0], one) for one in value)
    if inspect.isclass(origin) and getattr(origin, "_is_protocol", False):
        return False
    return isinstance(value, origin) if inspect.isclass(origin) else True


def right(annotation: Any, name: str) -> Any:
    """A value that fits, for the parameters that are not looked at."""
    known = {
        "workdir": ".", "name": "n", "config": Net.C(), "first": Net.C(), "second": Net.C(), "cls": Net,
        "template": Fit, "vary": {"x": [1]}, "command": ["true"], "path": ".",
        "alternatives": (tenuto.Alternative(cores=1),),
        "metrics": {"a": 1.0}, "value": 1, "exclude_groups": [tenuto.param_group("g")], "task": Fit,
        "files": {"run.sh": b""}, "url": "http://127.0.0.1:9", "method": "out", "output": "out",
        "callback": print, "service": "s", "token": None, "state": {}, "cells": 3, "ranges": [(0.0, 1.0)],
        "low": 1, "high": 2, "options": [1, 2], "measures": [0.5], "objective": 1.0, "number": 0,
        "values": {"x": 1},
        "outcome": 1.0, "agent": "true", "evaluate": "true", "emitters": [Wrong()], "subscriber": print,
        "count": 1, "cell": 0, "text": "t", "kind": "a100", "memory_bytes": 1, "function": None,
        "directory": "elsewhere", "action": "kill", "rows": [], "host": tenuto.Host(), "score": (0.0,),
        "id": 1, "archive": Wrong(), "key": "k", "listening": None, "flag": True, "settings": Settings(),
        "given": ".", "requirements": "cpu(cores=1)", "mine": {0: 1.0}, "step": 0, "others": [],
    }  # fmt: skip
    if name == "group":
        found: Any = tuple.__new__(tenuto.catalogue.Group)  # refused before it is read
        return found
    if str(annotation) == str(type[ConfigBase]):
        return Net
    if name == "id" and annotation == "str":
        return "search/n"
    assert name in known, f"a right value for {name}: {annotation}"
    return known[name]


def made(stack: ExitStack) -> dict[str, Callable[[], Any]]:
    """The objects whose methods are called."""
    search = tenuto.search
    return {
        "Config": Net.C,
        "Task": Fit.C,
        "experiment": lambda: stack.enter_context(experiment("ws", "n", run_mode="dry_run")),
        "Catalogue": lambda: tenuto.Catalogue("."),
        "Client": lambda: tenuto.Client("http://127.0.0.1:9", timeout_s=0.01),
        "CounterToken": lambda: tenuto.CounterToken("t", 1, "tokens"),
        "Requirement": lambda: tenuto.Requirement.parse("cpu(cores=1)"),
        "ClusterOptions": tenuto.ClusterOptions,
        "SlurmOptions": tenuto.SlurmOptions,
        "Workspace": lambda: tenuto.Workspace("."),
        "PathGenerator": lambda: tenuto.PathGenerator("m"),
        "ProcessService": lambda: tenuto.ProcessService(["true"]),
        "Service": tenuto.Service,
        "WebService": tenuto.WebService,
        "Archive": lambda: search.Archive(3, [(0.0, 1.0)]),
        "Median": search.Median,
        "Halving": search.Halving,
        "Sub": lambda: search.Sub(Net),
        "Evolution": lambda: search.Evolution(
            "n", Fit, space={"x": search.Integer(1, 2)}, sampler=search.RandomSearch()
        ),
        "Study": lambda: search.Study({"x": search.Integer(1, 2)}, search.RandomSearch()),
        "Choice": lambda: search.Choice([1, 2]),
        "Integer": lambda: search.Integer(1, 2),
        "Real": lambda: search.Real(1, 2),
    }


OF_SAMPLERS = {"begin", "vary", "definition", "draw", "near", "choices", "checked", "make", "flat", "nested"}
OF_SAMPLERS |= {"from_units", "to_units", "unit", "number", "number_of", "realized", "points"}
"""Methods by which a search speaks with its samplers and spaces."""
OF_DOORS = {"serve", "move", "adapted", "environment", "search", "unknown", "submit_", "need", "place", "of"}
"""Methods by which rooms of ours speak with each other."""


class Called(typing.NamedTuple):
    """One parameter of one public callable, with values that it excludes."""

    where: str
    owner: str
    name: str
    parameter: inspect.Parameter
    wrong: list[Any]


def public() -> Iterator[tuple[str, str, Any]]:
    """Class or nothing, name and callable."""
    for face in (tenuto, tenuto.search):
        for name in face.__all__:
            found = getattr(face, name)
            if not inspect.isclass(found):
                if inspect.isfunction(found):
                    yield "", name, found
                continue
            if issubclass(found, BaseException | enum.Enum) or name in INNER.keys() - CONSTRUCTED:
                continue
            if not issubclass(found, Config) and inspect.isfunction(found.__init__):
                yield "", name, found
            for method, body in vars(found).items():
                is_looked_at = not method.startswith("_") and method not in OF_SAMPLERS | OF_DOORS
                body = getattr(found, method) if isinstance(body, staticmethod | classmethod) else body
                if (
                    is_looked_at
                    and name not in INNER
                    and isinstance(inspect.unwrap(body), types.FunctionType | types.MethodType)
                ):
                    yield name, method, body


def names_of_types() -> dict[str, Any]:
    """Every class of the house by its name, for annotations whose imports are for type checkers."""
    import importlib
    import pkgutil

    found: dict[str, Any] = {"Path": Path, "os": os, "Any": Any, "Self": Any}
    for info in pkgutil.walk_packages(tenuto.__path__, "tenuto."):
        if not any(part in info.name for part in ("__main__", "examples", "testing", "migrations", ".tui")):
            with_names = importlib.import_module(info.name)
            found |= {k: v for k, v in vars(with_names).items() if inspect.isclass(v) and k not in found}
    return found


def calls() -> Iterator[Called]:
    known = names_of_types()
    for owner, name, found in public():
        body = found.__init__ if inspect.isclass(found) else found
        plain = inspect.unwrap(getattr(body, "__func__", body))
        space = {**known, **plain.__globals__}
        for one in inspect.signature(body).parameters.values():
            if one.name == "self" or one.annotation is inspect.Parameter.empty:
                continue
            noted = one.annotation
            meant = eval(noted, space) if isinstance(noted, str) else noted
            wrong = [value for value in POOL if not fits(meant, value)]
            if wrong:
                yield Called(f"{owner}.{name}".strip("."), owner, name, one, wrong)


CALLS = list(calls())


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.mark.parametrize("called", CALLS, ids=[f"{one.where}-{one.parameter.name}" for one in CALLS])
def test_a_wrong_type_is_refused_by_name(
    called: Called, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stack: ExitStack
) -> None:
    monkeypatch.chdir(tmp_path)
    face = tenuto if hasattr(tenuto, called.owner or called.name) else tenuto.search
    found = getattr(made(stack)[called.owner]() if called.owner else face, called.name)
    before = sorted(tmp_path.rglob("*"))
    for value in called.wrong:
        given, named = arguments(found, called.parameter, value)
        with pytest.raises((TypeError, ValueError, TenutoError)) as refusal:
            found(*given, **named)
        said = str(refusal.value)
        assert called.parameter.name in said or called.where.rpartition(".")[2] + "()" in said, said
        assert "test_wrong_types.py" in said or "argument" not in said, f"refused from inside: {said}"
        assert sorted(tmp_path.rglob("*")) == before


def arguments(found: Any, looked_at: inspect.Parameter, value: Any) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a call that is wrong in one."""
    given: list[Any] = []
    named: dict[str, Any] = {}
    for one in inspect.signature(found).parameters.values():
        if one.name == looked_at.name:
            chosen = value
        elif (
            one.default is inspect.Parameter.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        ) or one.name == "requirements":
            chosen = right(one.annotation, one.name)
        else:
            continue
        if one.kind in (one.POSITIONAL_ONLY, one.VAR_POSITIONAL):
            given.append(chosen)
        else:
            named["k" if one.kind is one.VAR_KEYWORD else one.name] = chosen
    return given, named


def test_the_settings_and_every_face_are_looked_at() -> None:
    assert {"experiment", "grid", "Task.submit", "Evolution", "Client", "Catalogue.rows"} <= {
        c.where for c in CALLS
    }
    assert isinstance(Settings(), Settings)


def evolution(**changed: Any) -> Any:
    search = tenuto.search
    given = {"task": Fit, "sampler": search.RandomSearch(), "space": {"x": search.Integer(1, 2)}, **changed}
    return search.Evolution("n", **given)


BY_HAND: dict[str, Callable[[Any], Any]] = {
    "launcher": lambda value: Fit.C().submit(launcher=value),
    "workspace": lambda value: Fit.C().submit(workspace=value),
    "run_mode": lambda value: Fit.C().submit(run_mode=value),
    "transient": lambda value: Fit.C().submit(transient=value),
    "requires": lambda value: Fit.C().submit(requires=value),
    "on()": lambda value: Fit.C().on("out", value),
    "needs()": lambda value: Fit.C().needs(value),
    "add_dependencies()": lambda value: Fit.C().add_dependencies(value),
    "deprecate": tenuto.deprecate,
    "task": tenuto.task,
    "parse": tenuto.Requirement.parse,
    "task=": lambda value: evolution(task=value),
    "sampler=": lambda value: evolution(sampler=value),
    "sampler": lambda value: tenuto.search.Study({"x": tenuto.search.Integer(1, 2)}, value),
    "archive=": lambda value: tenuto.search.RibsSampler(value, [Wrong()]),
}
"""Parameters that are `Any` for type checkers, and take only some values."""
WRONG = [5, b"bytes", 1.5, True, Wrong(), Wrong, [Wrong()]]


@pytest.mark.parametrize("value", WRONG, ids=[type(value).__name__ for value in WRONG])
@pytest.mark.parametrize("name", BY_HAND)
def test_what_no_annotation_says_is_refused_too(
    name: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stack: ExitStack
) -> None:
    monkeypatch.chdir(tmp_path)
    stack.enter_context(experiment("ws", "n", run_mode="dry_run"))
    with pytest.raises((TypeError, ValueError, TenutoError)) as refusal:
        BY_HAND[name](value)
    assert type(refusal.value).__module__ == "tenuto.errors"


class Elsewhere:
    """A path of another library."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __fspath__(self) -> str:
        return str(self.path)


class Named(str):
    """A text of a library."""


GOOD: dict[str, Callable[[Path], Any]] = {
    "path-like": lambda path: (
        tenuto.save(Net.C(), Elsewhere(path / "a")),
        tenuto.load(Elsewhere(path / "a")),
        Net.C().instance(Elsewhere(path)),
        tenuto.Workspace(Elsewhere(path)),
    ),
    "subclass of text": lambda _: (
        tenuto.param_group(Named("g")),
        tenuto.help(Named("h")),
        tenuto.Requirement.parse(Named("cpu(cores=1)")),
    ),
    "numbers of NumPy": lambda _: (
        tenuto.progress(np.float32(0.5), np.int64(0)),
        tenuto.log_metrics({"loss": np.float32(0.5)}, step=np.int64(3)),
        tenuto.log_metrics({"loss": np.array([0.5]), "accuracy": np.array([[1]])}),
        tenuto.grid(Fit, {"x": np.arange(3)}, sample=np.int64(2), sample_seed=np.int64(1), seeds=np.int64(2)),
        tenuto.grid(Fit, {"x": [np.int64(1)]}, seeds=np.arange(2)),
        tenuto.search.Archive(3, np.array([[0.0, 1.0]])).add(1, {}, np.float64(1), np.array([0.5])),
        tenuto.setmeta(Net.C(), np.True_),
    ),
    "iterables": lambda path: (
        tenuto.Choices(name for name in ("a", "b")),
        tenuto.Choices(range(3)),
        tenuto.grid(Fit, {"x": (number for number in range(2))}, seeds=range(2)),
        tenuto.grid(Fit, types.MappingProxyType({"x": {1: "a"}.keys()})),
        tenuto.log_metrics(types.MappingProxyType({"loss": 1})),
        tenuto.partial(exclude_groups=(tenuto.param_group("g"),)),
        experiment(path, "n", project_paths=(one for one in [path])),
        experiment(path, "n", project_paths=str(path), submit_hooks=iter(())),
        tenuto.find_launcher("cpu(cores=1)", tags={"local"}),
    ),
    "none": lambda path: (
        tenuto.progress(0.5, desc=None),
        tenuto.log_metrics({"loss": 1.0}, step=None),
        experiment(path, "n", port=None, launcher=None, fail_fast=None, settings=None, rerun=None),
        tenuto.ClusterOptions(),
        Fit.C().instance(None),
    ),
    "whole numbers for numbers": lambda _: (
        tenuto.progress(1),
        tenuto.search.Real(1, 2),
        tenuto.search.Gaussian(1),
        tenuto.Client("http://127.0.0.1:9", timeout_s=1),
    ),
    "local classes": lambda _: local_deprecation(),
}
"""Uses that no check of types may refuse."""


def local_deprecation() -> None:
    class New(Config):
        width: Param[int] = 1

    @tenuto.deprecate(New)
    class Old(Config):
        width: Param[int] = 1

    assert tenuto.former_identity(Old.C()) is not None


@pytest.mark.parametrize("name", GOOD)
def test_what_fits_is_taken(name: str, tmp_path: Path) -> None:
    assert name in GOOD
    GOOD[name](tmp_path)
