"""Owns the names of jobs without tags: the parameters in which the jobs of a task differ."""

from __future__ import annotations

from tenuto import Config, Meta, Param, Task
from tenuto.experiments.overview import VaryingNames


class Data(Config):
    size: Param[int]
    kind: Param[str] = "train"


class Fit(Task):
    data: Param[Data]
    lr: Param[float]
    place: Meta[str] = "here"


def test_jobs_are_named_by_what_varies() -> None:
    names = VaryingNames()
    for number, (size, lr) in enumerate([(1, 0.1), (1, 0.2), (2, 0.1)]):
        names.add("Fit", str(number), Fit.C(data=Data.C(size=size), lr=lr, place=str(number)))
    assert names.name("Fit", "0") == {"lr": "0.1", "data.size": "1"}
    assert names.name("Fit", "2") == {"lr": "0.1", "data.size": "2"}
    assert names.name("Fit", "unknown") == {}


def test_a_job_alone_needs_no_name() -> None:
    names = VaryingNames()
    names.add("Fit", "a", Fit.C(data=Data.C(size=1), lr=0.1))
    assert names.name("Fit", "a") == {}
