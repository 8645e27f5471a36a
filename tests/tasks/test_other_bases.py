"""Owns configs that have other bases, which keep their state in `__init__` and override `__setattr__`."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from tenuto import Config, Param, Task, identity
from tenuto.tasks.serialization import dumps, job_document
from tenuto.tasks.stored_configs import read_job


class Module:
    """As PyTorch's: its parts are kept apart, and nothing can be a part before `__init__` has run."""

    training: bool

    def __init__(self) -> None:
        object.__setattr__(self, "training", True)
        object.__setattr__(self, "_parts", {})

    def __setattr__(self, name: str, value: Any) -> None:
        parts = self.__dict__.get("_parts")
        if isinstance(value, Module | Tensor):
            if parts is None:
                raise AttributeError("cannot assign parts before Module.__init__() call")
            self.__dict__.pop(name, None)
            parts[name] = value
        else:
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__.get("_parts", {}):
            return self.__dict__["_parts"][name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def tensors(self) -> list[Tensor]:
        parts = self.__dict__["_parts"].values()
        return [t for part in parts for t in ([part] if isinstance(part, Tensor) else part.tensors())]


class Tensor:
    def __init__(self, size: int) -> None:
        self.size = size


class Layer(Config, Module):
    width: Param[int]

    def __init__(self) -> None:
        super().__init__()
        self.weight = Tensor(self.width)


class Net(Config, Module):
    """Has no `__init__` of its own: that of its base runs."""

    encoder: Param[Layer]
    depth: Param[int] = 2

    def __post_init__(self) -> None:
        self.head = Tensor(self.depth)


class Train(Task, Module):
    net: Param[Net]

    def __init__(self, scale: int = 1) -> None:
        super().__init__()
        self.scale = scale


class Reversed(Module, Task):
    width: Param[int]


class Use(Task):
    train: Param[Train]
    other: Param[Reversed]


def net() -> Net:
    return Net.C(encoder=Layer.C(width=3))


def test_a_live_object_runs_the_inits_of_its_bases_with_its_parameters_set() -> None:
    live = net().instance()
    assert [tensor.size for tensor in live.tensors()] == [3, 2]
    assert live.encoder.weight.size == live.encoder.width == 3
    assert live.training
    with pytest.raises(AttributeError, match="no attribute 'tail'"):
        live.tail  # type: ignore[attr-defined]


def test_a_config_is_as_any_other() -> None:
    config = net()
    assert identity(config) == identity(net()) != identity(Net.C(encoder=Layer.C(width=4)))
    config.depth = 5
    assert config.copy().depth == 5
    assert not hasattr(config, "training"), "no init runs in a config"
    assert repr(config) == "Net.C(encoder=Layer.C(…), depth=5)"


def test_a_job_builds_it_and_what_depends_on_it(experiment: Any, tmp_path: Path) -> None:
    train, other = Train.C(net=net()).submit(), Reversed.C(width=7).submit()
    use = Use.C(train=train, other=other).submit()
    for task in (train, other, use):
        task.jobpath.mkdir(parents=True)
        written = job_document(task, task.jobpath, tmp_path / "partials", [])
        (task.jobpath / "params.json").write_bytes(dumps(written))
    live, _ = read_job(use.jobpath)
    assert [tensor.size for tensor in live.train.tensors()] == [3, 2]
    assert (live.train.scale, live.train.net.encoder.width, live.other.width) == (1, 3, 7)


def test_pytorch_modules_are_configs() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    class Linear(Config, torch.nn.Module):  # type: ignore[misc, name-defined]
        width: Param[int]

        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(self.width, 2)

    class Outer(Config, torch.nn.Module):  # type: ignore[misc, name-defined]
        inner: Param[Linear]

    live = Outer.C(inner=Linear.C(width=3)).instance()
    assert sum(p.numel() for p in live.parameters()) == 8
    assert pickle.loads(pickle.dumps(live.state_dict()))
