"""Random numbers of a job: the seed that a task was given, and the generators that it seeds.
It knows `random`, NumPy and PyTorch, and imports none of them: a library loaded later is seeded then.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tenuto.errors import ParameterError, SealedConfig
from tenuto.light import late
from tenuto.tasks.arguments import is_whole, refused
from tenuto.tasks.base import ConfigBase, caller, class_name, state_of
from tenuto.tasks.config import assign
from tenuto.tasks.hints import UNSET
from tenuto.tasks.identity import forget_digest
from tenuto.tasks.schema import Schema, schema_of

if TYPE_CHECKING:
    import random
else:
    random = late("random")

SEED = "__seed__"
"""The parameter of a task that seeds its job: `__seed__: Param[int]`."""
SEED_VARIABLE = "TENUTO_SEED"
"""Tells the program of a `CommandTask` its seed."""
_LIMIT = 1 << 32
"""NumPy's old generator takes no larger one."""


def whole_seed(given: Any, what: str) -> int:
    """A seed that every generator takes; `ParameterError` for anything else."""
    if not is_whole(given) or not 0 <= given < _LIMIT:
        raise refused(what, f"a whole number from 0 to {_LIMIT - 1}", given)
    return int(given)


def give_seed(task: ConfigBase, seed: Any, what: str = "submit(seed=)") -> None:
    """Have the job of a task begin with a seed: its parameter `__seed__`, or else a part of its identity.

    `what`: the argument that an error names. `SealedConfig` if the task was submitted with another one.
    """
    seed = whole_seed(seed, what)
    state = state_of(task)
    is_declared = SEED in schema_of(type(task)).parameters
    known = task.__dict__.get(SEED) if is_declared else state.seed
    if known == seed:
        return
    if state.sealed:
        raise SealedConfig(
            f"{class_name(task)} was submitted before with "
            f"{'no seed' if known is None else f'seed {known}'}, at {caller()}: "
            f"submit a copy, made by copyconfig(task)"
        )
    if is_declared:
        assign(task, SEED, seed)
    else:
        forget_digest(state)
        state.seed = seed


def seed_of(task: Any) -> int | None:
    """The seed that a task was given, or declares; None without one. `ParameterError` for one of no use."""
    schema = schema_of(type(task))
    seed = declared_seed(schema, task.__dict__) if SEED in schema.parameters else state_of(task).seed
    return None if seed is None else whole_seed(seed, f"{class_name(task)}.{SEED}")


def declared_seed(schema: Schema, values: Any) -> Any:
    """The value of a config's parameter `__seed__`; None without one."""
    parameter = schema.parameters.get(SEED)
    if parameter is None:
        return None
    default = parameter.default
    return values.get(SEED, None if default is UNSET else default)


# -- generators, in the process of a job -------------------------------------------------------------


def draw_seed() -> int:
    """A seed by chance."""
    return int.from_bytes(os.urandom(4), "big")


def seed_generators(seed: int) -> None:
    """Seed `random`, NumPy and PyTorch (and through it CUDA); each once it is loaded."""
    _OnImport.install(seed)
    for name, seeded in _GENERATORS.items():
        module = sys.modules.get(name)
        # A module that is still being imported is seeded by the hook, once it is whole.
        if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
            seeded(module, seed)


def _seed_random(module: Any, seed: int) -> None:
    if hasattr(module, "seed"):
        module.seed(seed)


def _seed_numpy(module: Any, seed: int) -> None:
    """Seed `numpy.random`, and what `default_rng()` and its like draw when no seed is given to them."""
    if hasattr(module, "seed"):
        module.seed(seed)
    source = sys.modules.get("numpy.random.bit_generator")
    drawn = getattr(source, "randbits", None)
    if drawn is None:
        return
    plain = getattr(drawn, "plain", drawn)
    stream = random.Random(seed).getrandbits
    owner = os.getpid()

    def randbits(count: int) -> Any:
        return stream(count) if os.getpid() == owner else plain(count)

    randbits.plain = plain  # type: ignore[attr-defined]
    source.randbits = randbits  # type: ignore[union-attr]


def _seed_torch(module: Any, seed: int) -> None:
    """PyTorch passes the seed on to CUDA, once the task touches that."""
    if hasattr(module, "manual_seed"):
        module.manual_seed(seed)


_GENERATORS: dict[str, Callable[[Any, int], None]] = {
    "random": _seed_random,
    "numpy.random": _seed_numpy,
    "torch": _seed_torch,
}


class _OnImport:
    """A finder that seeds a generator right after its module was imported."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._owner = os.getpid()

    @classmethod
    def install(cls, seed: int) -> None:
        for finder in sys.meta_path:
            if isinstance(finder, cls):
                finder.seed = seed
                return
        sys.meta_path.insert(0, cls(seed))

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        # A forked worker of the job that is the first to import one would draw the numbers of its siblings.
        if name not in _GENERATORS or os.getpid() != self._owner:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            found = find(name, path, target) if finder is not self and find is not None else None
            if found is not None:
                if found.loader is not None:
                    found.loader = _Loader(found.loader, self)
                return found
        return None


class _Loader:
    """The loader of a module, which seeds the module once it is whole."""

    def __init__(self, plain: Any, hook: _OnImport) -> None:
        self._plain = plain
        self._hook = hook

    def exec_module(self, module: Any) -> None:
        module.__loader__ = module.__spec__.loader = self._plain
        self._plain.exec_module(module)
        _GENERATORS[module.__name__](module, self._hook.seed)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)


def check_seed(task: Any) -> None:
    """Refuse a task whose parameter `__seed__` is of no use, before it has a job."""
    parameter = schema_of(type(task)).parameters.get(SEED)
    if parameter is not None and SEED not in task.__dict__ and parameter.default is UNSET:
        raise ParameterError(
            f"{class_name(task)}.{SEED} has no value, at {caller()}: give it, or submit(seed=)"
        )
    seed_of(task)
