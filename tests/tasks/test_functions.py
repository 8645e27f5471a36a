"""Owns plain functions as tasks, and the short spellings: `Output`, `needs`, `on`, checkpoints."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenuto import (
    Config,
    Meta,
    Output,
    Param,
    PathGenerator,
    ResumableTask,
    Task,
    field,
    identity,
    task,
)
from tenuto.errors import DeclarationError, InvalidValue, ParameterError, TenutoError, UnknownParameter
from tenuto.tasks.task import Checkpoint


class Data(Config):
    size: Param[int]


@task
def fit(lr: float, data: Data, epochs: int = 2, *, note: Meta[str] = "") -> float:
    """Fits."""
    return lr * data.size * epochs


@task
def kept(
    lr: float,
    epochs: int = field(default=3, ignore_default=2),
    data: Data = Data.C(size=3),  # noqa: B008
    *,
    names: list[str] = field(default_factory=list),  # noqa: B008
    model: Meta[Path] = Output("model.pt"),  # noqa: B008
    needed: int = field(help="no default"),
) -> list[Any]:
    return [lr, epochs, type(data), names, model, needed]


@task(id="my.named")
def named(x: int) -> int:
    return x + 1


@task
async def waits(x: int) -> int:
    return x


class Same(Task):
    __xpmid__ = "tests.same"
    lr: Param[float]
    epochs: Param[int] = 2


@task(id="tests.same")
def same(lr: float, epochs: int = 2) -> float:
    return lr


def test_a_function_is_called_plainly_and_makes_configs() -> None:
    data = Data.C(size=3)
    assert fit(0.5, data.instance()) == 3.0
    config = fit.C(lr=0.5, data=data)
    assert config.instance().execute() == 3.0
    assert fit.__name__ == "fit"
    assert fit.__doc__ == "Fits."
    assert repr(config) == "fit.C(lr=0.5, data=Data.C(…), epochs=2, note='')"
    assert named.C(x=1).instance().execute() == 2


def test_a_plain_call_has_the_values_that_defaults_stand_for() -> None:
    """The line that the error of a changed default tells to write gave the function a `Field`."""
    assert kept(0.5, needed=1) == [0.5, 3, Data, [], Path("model.pt"), 1]
    assert kept(0.5, 4, needed=1, names=["a"]) == [0.5, 4, Data, ["a"], Path("model.pt"), 1]
    with pytest.raises(TypeError, match="needed"):
        kept(0.5)
    assert identity(kept.C(lr=0.5, needed=1)) != identity(kept.C(lr=0.5, needed=1, epochs=2))


def test_a_function_has_the_identity_rules_of_a_class() -> None:
    data = Data.C(size=3)
    assert identity(fit.C(lr=0.5, data=data)) == identity(fit.C(lr=0.5, data=data, epochs=2, note="x"))
    assert identity(fit.C(lr=0.5, data=data)) != identity(fit.C(lr=0.5, data=data, epochs=3))
    assert identity(same.C(lr=0.5)) == identity(Same.C(lr=0.5))
    with pytest.raises(InvalidValue, match=r"fit\.lr expects float"):
        fit.C(lr="high", data=data)  # type: ignore[arg-type]
    with pytest.raises(UnknownParameter, match=r"no parameter 'rate'"):
        fit.C(rate=1)  # type: ignore[call-arg]


def local() -> Any:
    def inner(x: int) -> int:
        return x

    return inner


class Holder:
    def method(self, x: int) -> int:
        return x


def no_annotation(x) -> int:  # type: ignore[no-untyped-def]
    return int(x)


def starred(*x: int) -> int:
    return len(x)


def keywords(**x: int) -> int:
    return len(x)


def nameless(x: int, /) -> int:
    return x


def generates(x: int) -> Any:
    yield x


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x,
        local(),
        Holder.method,
        no_annotation,
        starred,
        keywords,
        nameless,
        generates,
        Holder,
        5,
        print,
    ],
)
def test_what_no_job_could_call_is_refused_where_it_is_decorated(function: Any) -> None:
    with pytest.raises(TenutoError, match="@task"):
        task(function)


def test_a_wrong_id_is_refused() -> None:
    with pytest.raises(ParameterError, match=r"task\(id=\)"):
        task(id=5)  # type: ignore[call-overload]


# -- short spellings ---------------------------------------------------------------------------------


class Long(Task):
    __xpmid__ = "tests.output"
    x: Param[int] = 1
    model: Meta[Path] = field(default_factory=PathGenerator("model.pt"))


class Short(Task):
    __xpmid__ = "tests.output.short"
    x: Param[int] = 1
    model: Meta[Path] = Output("model.pt")
    plain: Path = Output("plain.pt")
    bare = Output("bare.pt")


class Child(Short):
    model = Output("other.pt")


def test_an_output_is_a_generated_path(tmp_path: Path, experiment: Any) -> None:
    live = Short.C().instance(tmp_path)
    assert [live.model, live.plain, live.bare] == [tmp_path / f"{n}.pt" for n in ("model", "plain", "bare")]
    assert Child.C().instance(tmp_path).model == tmp_path / "other.pt"
    submitted = Short.C().submit()
    assert submitted.model == submitted.jobpath / "model.pt"
    with pytest.raises(DeclarationError, match="stays inside the job's directory"):
        Output("../x")


class Resumes(ResumableTask):
    def execute(self) -> Any:
        state = self.checkpoint.load({"step": 0})
        state["step"] += 1
        self.checkpoint.save(state)
        return state["step"]


class OwnName(Task):
    checkpoint: Meta[Path] = field(default_factory=PathGenerator("mine"))
    needs: Param[int] = 1
    on: Param[bool] = True


class OwnMethod(Task):
    def checkpoint(self, dep: Callable[..., Any], step: int) -> Any:
        return dep(Data.C(size=step))


def test_a_checkpoint_is_loaded_by_the_next_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert [Resumes.C().instance().execute() for _ in range(3)] == [1, 2, 3]
    assert [path.name for path in (tmp_path / ".checkpoint").iterdir()] == ["3.pickle"]


def test_the_last_checkpoints_are_kept_and_a_torn_one_is_passed_over(tmp_path: Path) -> None:
    saved = Checkpoint(tmp_path / "c")
    assert saved.load() is None
    for step in range(12):
        saved.save(step, keep=3)
    names = sorted(path.name for path in (tmp_path / "c").iterdir())
    assert names == ["10.pickle", "11.pickle", "12.pickle"]
    (tmp_path / "c" / "12.pickle").write_bytes(b"\x80\x05")
    (tmp_path / "c" / "13.part").write_bytes(b"half")
    assert saved.load() == 10
    with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
        saved.save(lambda: 0)
    assert saved.load() == 10, "what cannot be saved leaves the last state"
    with pytest.raises(ParameterError, match=r"keep="):
        saved.save(1, keep=0)


def test_a_class_may_have_parameters_and_methods_of_these_names(tmp_path: Path, experiment: Any) -> None:
    config = OwnName.C(needs=2)
    live = config.instance(tmp_path)
    assert (live.checkpoint, live.needs, live.on) == (tmp_path / "mine", 2, True)
    assert (config.needs, config.on) == (2, True)
    assert config.submit().checkpoint.name == "mine"
    assert OwnMethod.C().checkpoint(lambda made: made, 3).size == 3
    with pytest.raises(AttributeError):
        Resumes.C().checkpoint.load()


class Evaluates(Task):
    made: Param[Data]
    k: Param[int] = 1


class Compares(Task):
    made: Param[Data]
    other: Param[Data]


def test_what_follows_an_output_is_checked_at_the_call() -> None:
    training = OwnMethod.C()
    assert training.on(training.checkpoint, Evaluates, k=3) is training
    for output, follows, given in (
        (training.checkpoint, Data, {}),
        (training.checkpoint, 5, {}),
        (training.checkpoint, Evaluates, {"kk": 1}),
        (training.execute, Evaluates, {}),
        ("nothing", Evaluates, {}),
        (training.checkpoint, OwnName, {}),
        (training.checkpoint, Resumes, {}),
        (training.checkpoint, Compares, {}),
    ):
        with pytest.raises(TenutoError):
            training.on(output, follows, **given)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match=r"needs\(token\)"):
        training.needs("gpu")
