"""Owns one measurement of W7 for one system: ``identity.py SYSTEM CASE SIZE`` prints a JSON object.

The systems differ only in their imports and in how an identity is asked for; each through its documented
public API. This file runs in the system's own interpreter and imports nothing else.
"""

from __future__ import annotations

import json
import sys
import time

SYSTEM, CASE, SIZE = sys.argv[1], sys.argv[2], int(sys.argv[3])
NOTE = ""

if SYSTEM == "tenuto":
    from tenuto import Config, Param, Task
    from tenuto.tasks import identity
else:
    from experimaestro import Config, Param, Task

    def identity(config):
        return config.__xpm__.identifier

    if CASE == "c":
        sys.setrecursionlimit(1_000_000)
        NOTE = "recursion limit raised"


class Small(Task):
    a: Param[int]
    b: Param[float]
    c: Param[str]


class Leaf(Config):
    x: Param[int]


class Many(Task):
    items: Param[list[Leaf]]


class Nested(Leaf):
    child: Param[Leaf]


Dataset = type(Config)(
    "Dataset",
    (Config,),
    {
        "__module__": __name__,
        "__qualname__": "Dataset",
        "__annotations__": {f"p{i}": Param[int] for i in range(100)},
    },
)


class Shared(Task):
    data: Param[Dataset]
    a: Param[int]
    b: Param[float]


def small(n):
    return [Small.C(a=i, b=i / 7, c=str(i)) for i in range(n)]


def many(n):
    return [Many.C(items=[Leaf.C(x=i) for i in range(n)])]


def nested(n):
    config = Leaf.C(x=0)
    for i in range(1, n):
        config = Nested.C(x=i, child=config)
    return [config]


def shared(n):
    data = Dataset.C(**{f"p{i}": i for i in range(100)})
    return [Shared.C(data=data, a=i, b=i / 7) for i in range(n)]


def timed(work):
    cpu, wall = time.process_time(), time.perf_counter()
    result = work()
    return result, {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall}


build = {"a": small, "b": many, "c": nested, "d": shared}[CASE]
build(2)  # what a class does once, at its first use, is not the cost of a config
configs, built = timed(lambda: build(SIZE))
_, hashed = timed(lambda: [identity(config) for config in configs])
print(json.dumps({"build": built, "identity": hashed, "note": NOTE}))
