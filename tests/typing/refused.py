"""What both checkers must refuse: each marked line, for mypy's reason | pyright's reason, and no other line.
A line that one of them lets pass is marked with -.

Read by test_checkers.py, never imported.
"""

from pathlib import Path
from typing import Generic, TypeVar

from tenuto import Config, DataPath, LightweightTask, Meta, Param, Task, field, grid, task

T = TypeVar("T")


class Dataset(Config):
    name: Param[str]
    size: Param[int] = 60_000


@task
def fit(lr: float, data: Dataset) -> dict[str, float]:
    return {"loss": lr}


class Box(Config, Generic[T]):
    item: Param[T]


class Train(Task):
    data: Param[Dataset]
    lr: Param[float]
    epochs: Param[int] = 10
    note: Meta[str] = ""
    corpus: DataPath = Path("corpus.txt")


class Learn(Task[Dataset]):
    n: Param[int]


class Ignoring(Config):
    x: Param[int] = field(ignore_default=3)


class Warm(LightweightTask): ...


mnist = Dataset.C(name="mnist")
train = Train.C(data=mnist, lr=0.1)

# Making
Train.C(data=mnist, lr=0.1, epoch=3)  # error: call-arg | reportCallIssue
Train.C(data=mnist, lr="0.1")  # error: arg-type | reportArgumentType
Train.C(data=mnist)  # error: call-arg | reportCallIssue
Train.C(data="mnist", lr=0.1)  # error: arg-type | reportArgumentType
Train.C(data=train, lr=0.1)  # error: arg-type | reportArgumentType
Train.C(data=mnist, lr=0.1, note=3)  # error: arg-type | reportArgumentType
Train.C(data=mnist, lr=0.1, corpus=3)  # error: arg-type | reportArgumentType
Train.C(mnist, 0.1)  # error: call-arg | reportCallIssue
Box[int].C(item="text")  # error: arg-type | reportArgumentType
Box.C(item="text")  # error: arg-type | -
Ignoring.C()  # error: call-arg | reportCallIssue

# Reading and changing
train.epoch  # error: attr-defined | reportAttributeAccessIssue
train.lr = "high"  # error: assignment | reportAttributeAccessIssue
train.data.names  # error: attr-defined | reportAttributeAccessIssue
train.note.real  # error: attr-defined | reportAttributeAccessIssue
train.corpus.real  # error: attr-defined | reportAttributeAccessIssue

# Working with it
train.tag("lr", [0.1])  # error: arg-type | reportArgumentType
train.tag("lr")  # error: call-arg | reportCallIssue
Train.C(lr=0.1) @ mnist  # error: call-arg | reportCallIssue
train @ 3  # error: operator | reportOperatorIssue
Train.submit_all()  # error: attr-defined | reportAttributeAccessIssue
mnist.submit()  # error: attr-defined | reportAttributeAccessIssue
train.submit(retries=3)  # error: call-overload | reportCallIssue
train.submit(init_tasks=[mnist])  # error: list-item | reportArgumentType
Learn.C(n=1).submit().n  # error: attr-defined | reportAttributeAccessIssue
Box[int].C(item=1).item.upper()  # error: attr-defined | reportAttributeAccessIssue
grid(Train, {"lr": [0.1]})[0].rate  # error: attr-defined | reportAttributeAccessIssue
grid(Train, {"lr": 0.1})  # error: dict-item | reportArgumentType


# Functions
fit.C(lr="0.1", data=mnist)  # error: arg-type | reportArgumentType
fit.C(rate=0.1, data=mnist)  # error: call-arg | reportCallIssue
fit(0.1)  # error: call-arg | reportCallIssue
fit.C(lr=0.1, data=mnist).result().upper()  # error: attr-defined | reportAttributeAccessIssue


# Declaring
class Wrong(Config):
    a: Param[int] = "three"  # error: assignment | reportAssignmentType
    b: Param[int] = field(default="three")  # error: assignment | reportAssignmentType
    c: Param[int] = field(default_factory=str)  # error: assignment | reportAssignmentType
    d: Param[int] = field(fallback=3)  # error: call-overload | reportCallIssue
    e: DataPath[int]  # error: type-var | reportInvalidTypeForm
