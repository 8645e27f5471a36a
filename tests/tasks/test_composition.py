"""Putting configs together: composition, copies, tags, outputs, paths, grids, and what replaces what."""

import copy
import enum
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy
import pytest

from tenuto import (
    STDOUT,
    Config,
    Constant,
    CounterToken,
    LightweightTask,
    Meta,
    Param,
    PathGenerator,
    Task,
    cache,
    copyconfig,
    deprecate,
    explain,
    field,
    former_identity,
    grid,
    identity,
    initializer,
    param_group,
    partial,
    sealed_set,
    setmeta,
    stop_tags,
    tag,
    tags,
    tagspath,
)
from tenuto.errors import (
    AmbiguousComposition,
    DeclarationError,
    InvalidValue,
    MissingValue,
    NotInJob,
    ParameterError,
    SealedConfig,
    UnknownParameter,
)
from tenuto.tasks.identity import partial_identity
from tenuto.tasks.serialization import job_document, state_dict
from tenuto.tasks.stored_configs import from_state_dict
from tenuto.tasks.tags import CrossedTags, joined, tag_sets


class Data(Config):
    name: Param[str]


class BigData(Data):
    pass


class Model(Config):
    size: Param[int] = 1
    weights: Meta[Path] = field(default_factory=PathGenerator("weights.pt"))


class Train(Task):
    data: Param[Data]
    model: Param[Model | None] = None
    lr: Param[float] = 0.1
    note: Meta[str] = ""
    log: Meta[Path] = field(default_factory=PathGenerator("log.txt"))

    def checkpoint(self, dep: Any, step: int) -> Any:
        return dep(Data.C(path=f"{step}"))


class Evaluate(Task):
    trained: Param[Train]
    data: Param[Data | None] = None


class SetUp(LightweightTask):
    x: Param[int]


def train(**more: Any) -> Train:
    return Train.C(**{"data": Data.C(name="d"), **more})


# -- outer @ inner -----------------------------------------------------------------------------------


def test_composing_fills_the_one_parameter_that_fits() -> None:
    data, model = Data.C(name="d"), Model.C(size=2)
    outer = Train.C(lr=0.5)
    composed = outer @ data @ model
    assert (composed.data, composed.model, composed.lr) == (data, model, 0.5)
    assert not hasattr(outer, "data")
    assert identity(composed) == identity(Train.C(data=data, model=model, lr=0.5))


def test_composing_accepts_a_subclass() -> None:
    assert (Train.C() @ BigData.C(name="d")).data.name == "d"


def test_composing_where_nothing_fits_is_an_error() -> None:
    with pytest.raises(AmbiguousComposition, match=r"Train @ SetUp: no open parameter accepts it, at .*:\d+"):
        Train.C() @ SetUp.C(x=1)
    with pytest.raises(AmbiguousComposition, match="no open parameter"):
        train() @ Data.C(name="second")


def test_composing_where_several_fit_is_an_error() -> None:
    class Two(Config):
        one: Param[Data]
        other: Param[Data]

    with pytest.raises(AmbiguousComposition, match=r"2 parameters \(one, other\) accept it"):
        Two.C() @ Data.C(name="d")
    assert (Two.C(one=Data.C(name="a")) @ Data.C(name="b")).other.name == "b"


def test_a_constant_is_no_open_parameter() -> None:
    class Fixed(Config):
        always: Constant[Data] = Data.C(name="always")
        data: Param[Data]

    assert (Fixed.C() @ Data.C(name="d")).data.name == "d"


# -- copies ------------------------------------------------------------------------------------------


def test_a_copy_of_a_sealed_config_is_open_and_shares_what_is_inside() -> None:
    config = train(lr=tag(0.5)).seal()
    copied = config.copy()
    assert copied.tags() == {"lr": 0.5}
    copied.lr = 0.7
    assert (config.lr, copied.lr) == (0.5, 0.7)
    assert copied.data is config.data
    assert copied.tags() == {"lr": 0.7}, "a tag named after its parameter follows it"
    assert config.tags() == {"lr": 0.5}


def test_a_copy_is_checked_as_it_is_changed() -> None:
    assert copyconfig(train(), lr=1).lr == 1.0
    with pytest.raises(InvalidValue, match=r"Train\.lr expects float"):
        copyconfig(train(), lr="fast")
    with pytest.raises(UnknownParameter, match="has no parameter 'speed'"):
        copyconfig(train(), speed=1)


def test_a_copy_of_an_output_still_comes_from_its_task(experiment: Any) -> None:
    output = Split.C(data=Data.C(name="d")).submit()
    copied = copyconfig(output, name="other")
    assert copied._state.origin is output._state.origin
    assert identity(output.copy()) == identity(output)


def test_a_copy_of_a_submitted_task_was_not_submitted(experiment: Any) -> None:
    copied = train().submit().copy()
    assert copied._state.job is None
    copied.lr = 0.9
    copied.submit()
    assert len(experiment.jobs) == 2


def test_setmeta_is_refused_on_a_sealed_config() -> None:
    with pytest.raises(SealedConfig, match="comes too late"):
        setmeta(Data.C(name="d").seal(), True)


def test_setmeta_after_hashing_changes_the_identity_of_users() -> None:
    config = train()
    before = identity(config)
    setmeta(config.data, True)
    without = identity(config)
    setmeta(config.data, False)
    assert without != before == identity(config)


def test_sealed_set_changes_what_does_not_count() -> None:
    config = train().seal()
    before = identity(config)
    sealed_set(config, "note", "later")
    sealed_set(config, "log", Path("elsewhere"))
    assert (config.note, config.log, identity(config)) == ("later", Path("elsewhere"), before)
    with pytest.raises(SealedConfig, match=r"Train\.lr may be part of an identity"):
        sealed_set(config, "lr", 0.2)
    with pytest.raises(UnknownParameter):
        sealed_set(config, "nothing", 1)
    with pytest.raises(InvalidValue):
        sealed_set(config, "note", 3)


def test_sealed_set_takes_no_config_in_or_out() -> None:
    class Noted(Config):
        other: Meta[Any] = None

    for held, new in [
        (None, Data.C(name="d")),
        (None, [Data.C(name="d")]),
        (setmeta(Data.C(name="d"), False), None),
    ]:
        config = Noted.C(other=held).seal()
        before = identity(config)
        with pytest.raises(SealedConfig, match="hold no config"):
            sealed_set(config, "other", new)
        assert identity(config) == before


# -- tags --------------------------------------------------------------------------------------------


def test_tags_come_from_below_and_an_own_tag_keeps_its_name() -> None:
    data = Data.C(name="d").tag("data", "d").tag("level", 2)
    config = train(data=data, lr=tag(0.5)).tag("level", 1)
    assert config.tags() == tags(config) == {"data": "d", "level": 1, "lr": 0.5, "data.level": 2}
    assert Evaluate.C(trained=config).tags() == config.tags()
    assert data.tags() == {"data": "d", "level": 2}


class Fit(Task):
    data: Param[Data]


class Cross(Task):
    fitted: Param[Fit]
    test: Param[Data]
    more: Param[list[Fit]] = field(default_factory=list)


def noisy(noise: Any) -> Data:
    return Data.C(name=f"{noise}").tag("noise", noise)


@pytest.mark.parametrize("is_sealed", [False, True])
@pytest.mark.parametrize(
    ("train_on", "test_on", "expected"),
    [
        (0.1, 0.1, {"noise": 0.1}),
        (0.1, 0.5, {"fitted.data.noise": 0.1, "test.noise": 0.5}),
        (1, True, {"fitted.data.noise": 1, "test.noise": True}),
        (float("inf"), float("inf"), {"noise": float("inf")}),
        (None, "None", {"fitted.data.noise": None, "test.noise": "None"}),
    ],
)
def test_tags_that_differ_are_named_by_their_path(
    train_on: Any, test_on: Any, expected: Any, is_sealed: bool
) -> None:
    config = Cross.C(fitted=Fit.C(data=noisy(train_on)), test=noisy(test_on))
    if is_sealed:
        config.seal()
    assert {name: (type(v), v) for name, v in config.tags().items()} == {
        name: (type(v), v) for name, v in expected.items()
    }


class Report(Task):
    """Uses a task whose tags cross."""

    fitted: Param[Cross]
    extra: Param[Data | None] = None


CROSSED = {"fitted.data.noise", "test.noise"}
TRAINED, TESTED = (noisy(noise) for noise in (0.1, 0.5))


def crossed(train_on: Data, test_on: Data, **more: Any) -> Cross:
    return Cross.C(fitted=Fit.C(data=train_on), test=test_on, **more)


@pytest.mark.parametrize(
    ("configs", "names"),
    [
        ([crossed(noisy(a), noisy(b)) for a in (0.1, 0.5) for b in (0.1, 0.5)], CROSSED),
        ([crossed(a, b) for a in (TRAINED, TESTED) for b in (TRAINED, TESTED)], CROSSED),
        ([crossed(noisy(1), noisy(b)) for b in (True, 1)], CROSSED),
        ([Report.C(fitted=crossed(a, b)) for b in (TRAINED, TESTED) for a in (TRAINED, TESTED)], CROSSED),
        (
            [crossed(a, b).tag("noise", "own") for a in (TRAINED, TESTED) for b in (TRAINED, TESTED)],
            {"noise", *CROSSED},
        ),
        ([crossed(noisy(a), noisy(a)) for a in (0.1, 0.5)], {"noise"}),
        ([crossed(noisy(a), noisy(a)).tag("test.noise", a) for a in (0.1, 0.5)], {"noise", "test.noise"}),
        (
            [
                Report.C(fitted=crossed(a, TESTED), extra=b)
                for a in (TRAINED, TESTED)
                for b in (TRAINED, TESTED)
            ],
            {"fitted.data.noise", "test.noise", "fitted.fitted.data.noise", "extra.noise"},
        ),
    ],
    ids="crossed shared_configs types_differ inherited own_tag equal own_name two_levels".split(),
)
@pytest.mark.parametrize("order", [1, -1])
def test_all_jobs_of_a_task_have_crossed_tags_by_the_same_names(
    configs: list[Cross], names: set[str], order: int
) -> None:
    known, rows = CrossedTags(), [(config, tags(config)) for config in configs][::order]
    for config, _ in rows:
        config.seal()
    for config, own in rows:
        known.note("T", config, own)
    completed = [known.completed("T", config, own) for config, own in rows]
    assert [{*one} for one in completed] == [names] * len(rows)
    for (config, own), one in zip(rows, completed, strict=True):
        assert {name: one[name] for name in own if name in one} == {n: v for n, v in own.items() if n in one}
        if isinstance(config, Cross) and one.keys() >= CROSSED:
            assert (str(one["fitted.data.noise"]), str(one["test.noise"])) == (
                config.fitted.data.name,
                config.test.name,
            )


def test_a_job_without_one_of_the_crossed_tags_keeps_the_other_alone() -> None:
    known, both = CrossedTags(), crossed(TRAINED, TESTED)
    plain = crossed(TRAINED, Data.C(name="whole"))
    for config in (both, plain):
        config.seal()
    known.note("T", both, tags(both))
    assert known.completed("T", plain, tags(plain)) == {"fitted.data.noise": 0.1}
    assert known.completed("U", plain, tags(plain)) == {"noise": 0.1}, "a task of its own"


def test_a_tag_that_grid_gives_keeps_the_tag_that_it_would_hide() -> None:
    fitted = Fit.C(data=noisy(0.1))
    (config,) = grid(Cross, {"test.name": ["0.5"]}, fitted=fitted.tag("name", "a"), test=noisy(0.1))
    assert config.tags() == {"noise": 0.1, "name": "0.5", "fitted.name": "a"}


def test_a_list_has_the_tags_in_which_its_items_agree() -> None:
    fits = [Fit.C(data=noisy(noise)).tag("seed", 1).tag("k", k) for noise, k in ((0.1, 1), (0.5, 1))]
    config = Cross.C(fitted=Fit.C(data=Data.C(name="d")), test=Data.C(name="d"), more=fits)
    assert config.tags() == {"seed": 1, "k": 1}
    config.more = [*fits, Fit.C(data=Data.C(name="d")).tag("seed", 1)]
    assert config.tags() == {"seed": 1}, "what one of them lacks, they do not share"


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ([{"a": "A"}, {"a": "A"}], {"a": "A"}),
        ([{"a": "A"}, {"a": "B"}], {"a": ["A", "B"]}),
        ([{"a": "A"}, {"m": 1}, {}], {"a": "A", "m": 1}),
        (
            [{"a": "A", "k": 1}, {"a": "B", "k": 1}, {"a": "C", "k": 2}],
            {"a": ["A", "B", "C"], "k": [1, 1, 2]},
        ),
        ([{"a": "A"}, {"a": "B"}, {"a": "A"}, {}], {"a": ["A", "B"]}),
    ],
)
def test_a_job_that_is_asked_for_under_two_tags_has_both(asked: list[Any], expected: Any) -> None:
    found: Mapping[str, Any] = asked[0]
    for more in asked[1:]:
        found = joined(found, more)
    assert found == expected
    assert all(
        one.items() <= {**row}.items() for one, row in zip(asked, tag_sets(found), strict=False) if one
    )


def test_a_tag_is_kept_as_it_comes_back_from_a_file() -> None:
    class Kind(enum.StrEnum):
        ONE = "one"

    class Level(enum.IntEnum):
        LOW = 3

    config = train().tag("a", Kind.ONE).tag("b", Level.LOW).tag("c", True).tag("d", 0.5).tag("e", None)
    assert [type(value) for value in config.tags().values()] == [str, int, bool, float, type(None)]
    assert list(config.tags().values()) == ["one", 3, True, 0.5, None]


@pytest.mark.parametrize("is_sealed", [False, True])
def test_tags_can_be_added_at_any_time(is_sealed: bool) -> None:
    config = train()
    if is_sealed:
        config.seal()
    assert config.tag("a", 1).tag("a", 2).tag("b", None).tags() == {"a": 2, "b": None}


def test_the_tags_given_out_are_a_copy() -> None:
    config = train().tag("a", 1).seal()
    config.tags()["a"] = 2
    assert config.tags() == {"a": 1}


@pytest.mark.parametrize("is_sealed", [False, True])
def test_stop_tags_keeps_tags_from_users(is_sealed: bool) -> None:
    data = stop_tags(Data.C(name="d").tag("data", "d"))
    config = train(data=data).tag("own", 1)
    if is_sealed:
        config.seal()
    assert config.tags() == {"own": 1}
    assert data.tags() == {"data": "d"}


def test_tags_flow_through_the_task_a_config_came_from(experiment: Any) -> None:
    output = Split.C(data=Data.C(name="d").tag("data", "d")).submit()
    assert train(data=output).tags() == {"data": "d"}


def test_tagspath_is_sorted_and_safe_in_a_path() -> None:
    assert tagspath(train().tag("lr", 0.1).tag("epochs", 10)) == "epochs=10_lr=0.1"
    assert tagspath(train().tag("data", "../a b\n")) == "data=..-a-b-"
    assert tagspath(train()) == ""


def test_a_tag_is_a_plain_value() -> None:
    with pytest.raises(InvalidValue, match=r"the tag 'data' of Train expects str, int, float, bool or None"):
        train(data=tag(Data.C(name="d")))
    with pytest.raises(InvalidValue, match=r"the tag 'a' of Train .*\(list\), at .*:\d+"):
        train().tag("a", [1])  # type: ignore[arg-type]


def test_a_refused_value_leaves_no_tag() -> None:
    config = train()
    with pytest.raises(InvalidValue):
        config.lr = tag("fast")
    assert config.tags() == {}


# -- submitting --------------------------------------------------------------------------------------


class Part(Data):
    pass


class Split(Task[Part]):
    data: Param[Data]

    def task_outputs(self, dep: Any) -> Part:
        return dep(Part.C(name=f"{self.data.name}-part"))


class SplitInTwo(Task):
    data: Param[Data]

    def task_outputs(self, dep: Any) -> dict[str, Data]:
        return {"first": dep(Data.C(name="1")), "second": dep(Data.C(name="2"))}


def test_submitting_hands_over_the_sealed_task_and_how_to_run_it(experiment: Any) -> None:
    task = train()
    assert task.submit(launcher="slurm", max_retries=3, transient="yes") is task
    ((given, submission),) = experiment.submitted
    assert given is task
    assert (submission.launcher, submission.max_retries, submission.transient) == ("slurm", 3, "yes")
    assert (submission.workspace, submission.run_mode) == (None, None)
    assert task._state.sealed
    assert task.jobpath == task.job.path
    assert (task.stdout(), task.stderr()) == (task.jobpath / "stdout", task.jobpath / "stderr")
    assert task.wait() == "done"


def test_outputs_come_from_their_task(experiment: Any) -> None:
    split = Split.C(data=Data.C(name="d"))
    part = split.submit()
    assert part.name == "d-part"
    assert identity(part) != identity(Part.C(name="d-part"))
    assert identity(part) == identity(Split.C(data=Data.C(name="d")).submit())
    assert identity(part) != identity(Split.C(data=BigData.C(name="d")).submit())
    user = train(data=part).submit()
    assert user._state.upstream == (split,)


def test_outputs_may_be_several(experiment: Any) -> None:
    task = SplitInTwo.C(data=Data.C(name="d"))
    both = task.submit()
    user = Evaluate.C(trained=train(data=both["first"]).submit(), data=both["second"])
    user.submit()
    assert user._state.upstream[1:] == (task,)


def test_a_part_of_the_task_marked_as_its_output_is_another_config(experiment: Any) -> None:
    class Refine(Task):
        data: Param[Data]

        def task_outputs(self, dep: Any) -> Data:
            return dep(self.data)

    data = Data.C(name="d")
    task = Refine.C(data=data)
    refined: Any = task.submit()
    assert refined is not data
    assert refined.name == "d"
    assert identity(refined) != identity(data)
    user = train(data=refined).submit()
    assert user._state.upstream == (task,)


def test_init_tasks_count_in_order_and_stay(experiment: Any) -> None:
    def of(*numbers: int) -> str:
        return identity(train().submit(init_tasks=[SetUp.C(x=number) for number in numbers]))

    assert len({of(), of(1), of(1, 2), of(2, 1)}) == 4
    task = train()
    task.submit(init_tasks=[SetUp.C(x=1)])
    with pytest.raises(SealedConfig, match="was submitted before with other init_tasks"):
        task.submit(init_tasks=[SetUp.C(x=2)])


def test_init_tasks_bring_their_dependencies_and_tags(experiment: Any) -> None:
    class Load(LightweightTask):
        trained: Param[Train]

    trained = train(lr=tag(0.5)).submit()
    task = train()
    task.submit(init_tasks=[Load.C(trained=trained)])
    assert task._state.upstream == (trained,)
    assert task.tags() == {"lr": 0.5}


def test_added_dependencies_do_not_count(experiment: Any) -> None:
    other = train(lr=0.9).submit()
    token, more = (CounterToken(name, 1, "tokens").dependency(1) for name in ("token", "another"))
    task = train().add_dependencies(other, token).add_dependencies(more)
    assert identity(task) == identity(train())
    assert task._state.required == (other, token, more)
    assert task.copy()._state.required == task._state.required


def test_an_output_that_a_task_cannot_have_is_refused() -> None:
    task, model = train(), Model.C(size=3)
    for wrong in (Train.checkpoint, train(lr=0.5).checkpoint, task.execute, print, model.instance, task.copy):
        with pytest.raises(
            ParameterError, match=r"watch_output\(method\) of Train expects a method of this task"
        ):
            task.watch_output(wrong, print)


def test_watchers_and_callbacks_come_along_with_a_copy(experiment: Any) -> None:
    task = train()
    task.watch_output(task.checkpoint, print)
    task.on_completed(print)
    copied = task.copy()
    assert copied._state.watchers == ((copied.checkpoint, print),)
    copied.submit()
    assert (copied.job.watched, copied.job.callbacks) == ([(copied.checkpoint, print)], [print])


def test_watchers_and_callbacks_are_registered_once_before_or_after(experiment: Any) -> None:
    task = train()
    before, after, early, late = (lambda: None for _ in range(4))
    task.watch_output(task.checkpoint, before)
    task.on_completed(early)
    task.submit()
    task.watch_output("checkpoint", after)
    task.on_completed(late)
    task.submit()
    assert task.job.watched == [(task.checkpoint, before), (task.checkpoint, after)]
    assert task.job.callbacks == [early, late]


# -- generated paths ---------------------------------------------------------------------------------


def test_a_generated_path_is_known_once_submitted(experiment: Any) -> None:
    task = train(model=Model.C())
    with pytest.raises(MissingValue, match=r"Train\.log is a generated path: it is known once"):
        task.log
    task.submit()
    assert task.log == task.jobpath / "log.txt"
    assert task.model.weights == task.jobpath / "out" / "model" / "weights.pt"


def test_a_path_that_lies_in_two_jobs_is_refused_and_not_guessed(experiment: Any, tmp_path: Path) -> None:
    model = Model.C()
    first = train(model=model).submit()
    first.submit()
    assert model.weights == first.jobpath / "out" / "model" / "weights.pt"
    second = train(model=model, lr=0.5).submit()
    with pytest.raises(
        MissingValue, match=r"Model\.weights lies in the jobs of Train 0 and Train 1, which share"
    ):
        second.model.weights
    assert second.log == second.jobpath / "log.txt"
    live = second.instance(tmp_path / "here")
    assert live.model.weights == second.jobpath / "out" / "model" / "weights.pt"
    apart = train(model=copyconfig(model), lr=0.7).submit()
    assert apart.model.weights == apart.jobpath / "out" / "model" / "weights.pt"


class Improve(Task):
    model: Param[Model]
    seed: Param[int]

    def task_outputs(self, dep: Any) -> Any:
        return dep(self.model)


class Use(Task):
    model: Param[Model]


class Pair(Task):
    learned: Param[list[Train]]


def test_the_files_of_what_a_task_gives_out_lie_in_its_job(experiment: Any, tmp_path: Path) -> None:
    model = Model.C()
    first = Improve.C(model=model, seed=1).submit()
    second = Improve.C(model=model, seed=2).submit()
    assert [one.weights.parts[-4] for one in (first, second, copyconfig(second))] == ["0", "1", "1"]
    use = Use.C(model=second).submit()
    assert use.model.weights == tmp_path / "jobs" / "1" / "out" / "model" / "weights.pt"
    assert use.instance(tmp_path / "here").model.weights == use.model.weights
    both = Pair.C(learned=[train(model=model, lr=1.0).submit(), train(model=model, lr=2.0).submit()])
    assert not hasattr(both.instance(tmp_path / "here").learned[0].model, "weights")
    stored = job_document(use, use.jobpath, tmp_path / "partials", [])
    (given,) = [one for one in stored["objects"] if "given_out" in one]
    assert given["generated"] == {"weights": "../1/out/model/weights.pt"}
    again = from_state_dict(state_dict(second))
    assert Use.C(model=again).model._state.is_given_out


def test_a_given_path_wins_over_the_generated_one(experiment: Any) -> None:
    task = train(log=Path("mine")).submit()
    assert task.log == Path("mine")
    assert identity(train(log=Path("mine"))) == identity(train())


def test_generated_paths_of_a_live_object_lie_in_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = train(model=Model.C()).instance(tmp_path)
    assert live.log == tmp_path / "log.txt"
    assert live.model.weights == tmp_path / "out" / "model" / "weights.pt"
    monkeypatch.chdir(tmp_path)
    assert train().instance().log == tmp_path / "log.txt"


def test_a_live_object_finds_the_files_of_submitted_tasks(experiment: Any, tmp_path: Path) -> None:
    trained = train().submit()
    live = Evaluate.C(trained=trained).instance(tmp_path / "here")
    assert live.trained.log == trained.jobpath / "log.txt"


class Logs(Task):
    printed: Meta[Path] = field(default_factory=PathGenerator(STDOUT))
    folder: Meta[Path] = field(default_factory=PathGenerator())
    named: Meta[Path] = field(default_factory=PathGenerator(lambda config: f"{config.name}.txt"))
    fixed: Meta[Path] = field(default_factory=PathGenerator(lambda: "always.txt"))
    name: Param[str] = "x"


def test_a_path_is_a_log_the_directory_or_what_a_function_makes(experiment: Any, tmp_path: Path) -> None:
    logs = Logs.C(name="mine").submit()
    job = logs.jobpath
    assert (logs.printed, logs.folder) == (job / "stdout", job)
    assert (logs.named, logs.fixed) == (job / "mine.txt", job / "always.txt")
    stored = job_document(logs, job, tmp_path / "partials", [])["objects"][0]["generated"]
    assert stored == {"printed": "stdout", "folder": ".", "named": "mine.txt", "fixed": "always.txt"}
    with pytest.raises(DeclarationError, match="stays inside the job's directory"):
        PathGenerator(lambda: "../out").place(logs)


# -- partials ----------------------------------------------------------------------------------------

EPOCHS = param_group("epochs")
OTHER = param_group("other")


class Learn(Task):
    checkpoints = partial(exclude_groups=[EPOCHS])
    data: Param[Data]
    epochs: Param[int] = field(groups=[EPOCHS])
    seed: Param[int] = field(default=0, groups=[OTHER])
    checkpoint: Meta[Path] = field(default_factory=PathGenerator("model.pt", partial=checkpoints))


def learn(**more: Any) -> Learn:
    return Learn.C(**{"data": Data.C(name="d"), "epochs": 1, **more})


def test_tasks_that_differ_in_an_excluded_group_share_a_directory(experiment: Any) -> None:
    short, long = learn().submit(), learn(epochs=100).submit()
    assert identity(short) != identity(long)
    assert short.checkpoint == long.checkpoint
    assert short.checkpoint.is_relative_to(experiment.root / "partials")
    assert short.checkpoint.parts[-4:-2] == (f"{__name__}.Learn", "checkpoints")
    assert learn(seed=1).submit().checkpoint != short.checkpoint
    assert learn(data=Data.C(name="e")).submit().checkpoint != short.checkpoint


def test_a_partial_leaves_out_its_groups_below_too() -> None:
    class Wrapper(Config):
        inner: Param[Learn]

    def of(excluded: set[str], **more: Any) -> str:
        return partial_identity(Wrapper.C(inner=learn(**more)), frozenset(excluded))

    assert of({"epochs"}) == of({"epochs"}, epochs=2)
    assert of({"other"}) != of({"other"}, epochs=2)
    assert of({"epochs", "other"}) == of({"epochs", "other"}, epochs=2, seed=3)
    assert of(set()) == identity(Wrapper.C(inner=learn()))


# -- live methods ------------------------------------------------------------------------------------


class Cached(Config):
    x: Param[int]

    @cache("result.txt")
    def result(self, path: Path, extra: str = "") -> str:
        if not path.exists():
            path.write_text(f"{self.x}{extra}")
            return "computed"
        return path.read_text()


class Opened(Config):
    @initializer
    def open(self, value: int) -> list[int]:
        return [value]


def test_a_cached_method_shares_its_file_by_identity(job: Any) -> None:
    assert Cached.C(x=1).instance().result(extra="!") == "computed"
    assert Cached.C(x=1).instance().result() == "1!"
    assert Cached.C(x=2).instance().result() == "computed"
    assert min(job.cache_path.rglob("result.txt")).is_relative_to(job.cache_path / f"{__name__}.Cached")


def test_a_cached_method_needs_a_job() -> None:
    with pytest.raises(NotInJob):
        Cached.C(x=1).instance().result()


def test_an_initializer_runs_once_for_each_object() -> None:
    live = Opened.C().instance()
    assert live.open(1) is live.open(2)
    assert live.open(3) == [1]
    assert Opened.C().instance().open(2) == [2]


# -- grids -------------------------------------------------------------------------------------------


def test_a_grid_is_the_product_the_last_name_fastest() -> None:
    configs = grid(Train, {"lr": [0.1, 0.2], "note": ["a", "b"]}, data=Data.C(name="d"))
    assert [(config.lr, config.note) for config in configs] == [
        (0.1, "a"),
        (0.1, "b"),
        (0.2, "a"),
        (0.2, "b"),
    ]
    assert [config.tags() for config in configs][1] == {"lr": 0.1, "note": "b"}


def test_a_grid_takes_ranges_and_generators() -> None:
    assert [config.size for config in grid(Model, {"size": range(3)})] == [0, 1, 2]
    assert [config.size for config in grid(Model, {"size": (n * n for n in range(3))})] == [0, 1, 4]
    assert [identity(config) for config in grid(Model, {})] == [identity(Model.C())]


def test_a_grid_over_a_template_reaches_inside_without_touching_it() -> None:
    template = train(model=Model.C(size=1)).tag("base", 1)
    before = identity(template)
    configs = grid(template, {"model.size": [5, 6], "data.name": ["a"]}, lr=0.5)
    assert [(config.model.size, config.data.name, config.lr) for config in configs] == [
        (5, "a", 0.5),
        (6, "a", 0.5),
    ]
    assert configs[0].tags() == {"base": 1, "size": 5, "name": "a"}
    assert configs[0].model is not configs[1].model
    assert identity(template) == before
    assert len(grid(template.seal(), {"model.size": [5, 6]})) == 2


def test_equal_last_names_are_tagged_in_full() -> None:
    class Both(Config):
        one: Param[Data]
        two: Param[Data]

    both = Both.C(one=Data.C(name=""), two=Data.C(name=""))
    (config,) = grid(both, {"one.name": ["a"], "two.name": ["b"]})
    assert config.tags() == {"one.name": "a", "two.name": "b"}


def test_a_grid_over_configs_is_tagged_by_their_classes() -> None:
    configs = grid(train(), {"data": [Data.C(name="a"), BigData.C(name="b")]})
    assert [config.tags() for config in configs] == [{"data": "Data"}, {"data": "BigData"}]


@pytest.mark.parametrize(
    ("vary", "error", "message"),
    [
        ({"lr": []}, ParameterError, "'lr' has no values, at "),
        ({"lr": "abc"}, ParameterError, "'lr' needs a list or range of values, not 'abc'"),
        ({"lr": 3}, ParameterError, "'lr' needs a list or range of values, not 3"),
        ({"lr": ["x"]}, InvalidValue, r"Train\.lr expects float"),
        ({"speed": [1]}, UnknownParameter, "Train has no parameter 'speed'"),
        ({"lr.x": [1]}, ParameterError, r"'lr\.x' leads through Train\.lr, which holds no config"),
        ({"data.nam": ["a"]}, UnknownParameter, "Data has no parameter 'nam'.*did you mean 'name'"),
    ],
)
def test_a_wrong_grid_is_refused(vary: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        grid(train(), vary)


class Net(Config):
    width: Param[int]


class Forest(Config):
    trees: Param[int]
    depth: Param[int] = 3


class Fitting(Task):
    net: Param[Net]
    model: Param[Net | Forest | None] = None
    lr: Param[float] = 0.1


def test_a_grid_needs_no_dummy_values() -> None:
    configs = grid(Fitting, {"net.width": [16, 64]}, model=Forest)
    assert [config.net.width for config in configs] == [16, 64]
    assert isinstance(configs[0].model, Forest)
    with pytest.raises(ParameterError, match=r"leads through Fitting\.model, which holds no config"):
        grid(Fitting, {"model.width": [1]})


def test_a_grid_over_classes_is_tagged_by_what_tells_them_apart() -> None:
    models = [Net.C(width=1), Forest.C(trees=5), Forest.C(trees=20)]
    configs = grid(Fitting, {"model": models}, net=Net.C(width=1))
    assert [config.tags()["model"] for config in configs] == ["Net", "Forest(trees=5)", "Forest(trees=20)"]


def test_names_of_a_grid_can_vary_together() -> None:
    vary = {"lr": [0.1, 0.2], "net.width": [1, 2]}
    found = [(config.lr, config.net.width) for config in grid(Fitting, vary, zip=True)]
    assert found == [(0.1, 1), (0.2, 2)]
    more = {**vary, "model": [None, Forest.C(trees=1)]}
    for names in (["lr", "net.width"], [["net.width", "lr"]]):
        found = [(c.lr, c.net.width, c.model is None) for c in grid(Fitting, more, zip=names)]
        assert found == [(0.1, 1, True), (0.1, 1, False), (0.2, 2, True), (0.2, 2, False)]


def test_a_sample_of_a_grid_is_always_the_same() -> None:
    vary = {"lr": [n / 1000 for n in range(1000)], "net.width": range(1000)}
    one, again, other = (grid(Fitting, vary, sample=5, sample_seed=seed) for seed in (0, 0, 1))
    assert [identity(config) for config in one] == [identity(config) for config in again]
    assert len({identity(config) for config in (*one, *other)}) == 10


class Numbers(Task):
    b: Param[bool] = False
    k: Param[int] = 0

    def execute(self) -> None: ...


def test_a_grid_takes_numbers_and_bools_of_numpy() -> None:
    runs = grid(Numbers, {"k": numpy.arange(2), "b": numpy.array([True, False])})
    found = [repr(value) for run in runs for value in (*run.tags().values(), run.k, run.b)]
    assert found[:4] == ["0", "True", "0", "True"]
    assert found[-4:] == ["1", "False", "1", "False"]


def test_a_grid_may_vary_the_seed_alone() -> None:
    assert [run.tags() for run in grid(Numbers, seeds=2)] == [{"seed": 0}, {"seed": 1}]


class Piece(Config):
    x: Param[int]


class Pieces(Config):
    one: Param[Piece]
    more: Param[list[Piece]]


def test_the_copy_module_copies_configs() -> None:
    parts = Pieces.C(one=Piece.C(x=1), more=[Piece.C(x=2)]).tag("a", 1).seal()
    near, deep = copy.copy(parts), copy.deepcopy(parts)
    assert near.one is parts.one
    assert identity(near) == identity(deep) == identity(parts)
    assert near.tags() == deep.tags() == {"a": 1}
    deep.one.x = deep.more[0].x = 5
    assert (parts.one.x, parts.more[0].x) == (1, 2)
    assert identity(deep) != identity(parts)


def test_seeds_of_a_grid_repeat_each_of_it() -> None:
    class Seeded(Task):
        lr: Param[float]
        __seed__: Param[int]

    for task, seeds in ((Fitting, 2), (Fitting, [0, 1]), (Seeded, range(2))):
        fixed = {"net": Net.C(width=1)} if task is Fitting else {}
        configs = grid(task, {"lr": [0.1, 0.2]}, seeds=seeds, **fixed)
        assert [(config.lr, config.tags()["seed"]) for config in configs] == [
            (0.1, 0),
            (0.1, 1),
            (0.2, 0),
            (0.2, 1),
        ]
        assert len({identity(config) for config in configs}) == 4


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"zip": "lr"}, "True, or names"),
        ({"zip": 5}, "True, or names"),
        ({"zip": ["lrr"]}, "'lrr' does not vary"),
        ({"zip": ["lr", "lr"]}, "named twice"),
        ({"zip": True}, "'lr' has 2 values and 'net.width' has 1"),
        ({"sample": 3}, "only 2 combinations"),
        ({"sample": 0}, "at least 1"),
        ({"sample": 1, "sample_seed": "a"}, "whole number"),
        ({"seeds": 0}, "at least 1"),
        ({"seeds": "5"}, "a number of seeds"),
        ({"seeds": []}, "no values"),
        ({"seeds": [-1]}, r"grid\(seeds=\)"),
    ],
)
def test_a_wrong_way_to_vary_is_refused(more: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        grid(Fitting, {"lr": [0.1, 0.2], "net.width": [1]}, **more)


def test_seeds_are_given_once() -> None:
    """The values of `__seed__` were replaced, and its tags stayed."""

    class Seeded(Task):
        __seed__: Param[int]

    for vary, fixed in (({"__seed__": [1, 2]}, {}), ({}, {"__seed__": 1})):
        with pytest.raises(ParameterError, match="give one of the two"):
            grid(Seeded, vary, seeds=3, **fixed)


def test_only_tasks_have_seeds() -> None:
    with pytest.raises(ParameterError, match="Forest is no task"):
        grid(Forest, {"trees": [1]}, seeds=2)


# -- what replaces what ------------------------------------------------------------------------------


class New(Config):
    x: Param[int]
    y: Param[int] = 0


@deprecate
class Old(New):
    pass


@deprecate
class Oldest(Old):
    pass


@deprecate
class Flat(Config):
    both: Param[tuple[int, int]]

    def __convert__(self) -> Config:
        return New.C(x=self.both[0], y=self.both[1])


@deprecate
class Flatter(Config):
    text: Param[str]

    def __convert__(self) -> Config:
        x, y = self.text.split(",")
        return Flat.C(both=(int(x), int(y)))


@deprecate
class FlatChild(Flat):
    pass


@deprecate(replace=True)
class Gone(New):
    pass


@deprecate(replace=True)
class GoneFlat(Config):
    both: Param[tuple[int, int]]

    def __convert__(self) -> Config:
        return New.C(x=self.both[0], y=self.both[1])


@pytest.mark.parametrize(
    "make",
    [
        lambda x, y: Old.C(x=x, y=y),
        lambda x, y: Oldest.C(x=x, y=y),
        lambda x, y: Flat.C(both=(x, y)),
        lambda x, y: FlatChild.C(both=(x, y)),
        lambda x, y: Flatter.C(text=f"{x},{y}"),
        lambda x, y: Gone.C(x=x, y=y),
        lambda x, y: GoneFlat.C(both=(x, y)),
    ],
)
def test_a_deprecated_class_has_the_identity_of_its_successor(make: Callable[[int, int], Any]) -> None:
    assert identity(make(1, 0)) == identity(New.C(x=1))
    assert identity(make(1, 2)) == identity(New.C(x=1, y=2)) != identity(make(1, 3))
    assert identity(Holder.C(value=make(1, 2))) == identity(Holder.C(value=New.C(x=1, y=2)))
    assert explain(make(1, 2), New.C(x=1, y=2)).same
    (reason,) = explain(make(1, 2), New.C(x=1, y=3)).differences
    assert (reason.path, reason.first, reason.second) == ("y", "2 (int)", "3 (int)")


class Holder(Config):
    value: Param[Any]


def test_replace_makes_the_successor_right_away() -> None:
    assert type(Gone.C(x=1)) is type(GoneFlat.C(both=(1, 0))) is New.C
    assert type(Old.C(x=1)) is Old.C


def test_the_former_identity_of_a_deprecated_config_can_be_found() -> None:
    class Before(New):
        __xpmid__ = f"{__name__}.Old"

    assert former_identity(Old.C(x=1)) == identity(Before.C(x=1)) != identity(Old.C(x=1))
    assert former_identity(Flat.C(both=(1, 2))) not in (None, identity(Flat.C(both=(1, 2))))
    assert former_identity(New.C(x=1)) is None


def test_the_former_identity_of_what_holds_a_deprecated_config_can_be_found() -> None:
    class Holder(Config):
        held: Param[Config]

    assert former_identity(Holder.C(held=New.C(x=1))) is None
    old = Holder.C(held=Old.C(x=1))
    assert identity(old) == identity(Holder.C(held=New.C(x=1)))
    assert former_identity(old) not in (None, identity(old))


class SplitOld(Task):
    data: Param[Data]

    def task_outputs(self, dep: Any) -> Any:
        return dep(Flat.C(both=(1, 2)))


def test_a_converted_output_still_comes_from_its_task(experiment: Any) -> None:
    first, second = (SplitOld.C(data=Data.C(name=name)).submit() for name in "ab")
    assert len({identity(first), identity(second), identity(New.C(x=1, y=2))}) == 3


def test_deprecating_without_a_successor_is_refused() -> None:
    with pytest.raises(DeclarationError, match="must derive from the class that replaces it"):
        deprecate(type(Config)("Alone", (Config,), {"__module__": __name__, "__qualname__": "Alone"}))
    with pytest.raises(DeclarationError, match="marks a Config class or a method"):
        deprecate(replace=True)(int)


def test_a_deprecated_class_with_parameters_of_its_own_must_convert_them() -> None:
    @deprecate
    class Wider(New):
        z: Param[int]

    with pytest.raises(DeclarationError, match=r"successor New has not \(z\): define __convert__"):
        Wider.C(x=1, z=2)


def test_convert_must_return_a_config() -> None:
    @deprecate
    class Wrong(Config):
        def __convert__(self) -> Any:
            return 3

    with pytest.raises(DeclarationError, match=r"Wrong\.__convert__ must return a config, not 3"):
        identity(Wrong.C())


class Renamed(Config):
    rate: Param[float]

    @deprecate
    def lr(self, value: float) -> None:
        """use rate"""
        self.rate = value


def test_a_deprecated_parameter_is_translated_with_a_warning() -> None:
    with pytest.warns(
        DeprecationWarning, match=r"Renamed\.lr is deprecated, at .*test_composition.*: use rate"
    ):
        config = Renamed.C(lr=0.5)
    assert identity(config) == identity(Renamed.C(rate=0.5))
    with pytest.warns(DeprecationWarning, match="use rate"):
        config.lr = 0.7
    assert config.rate == 0.7


def test_generated_paths_of_a_set_of_configs_do_not_depend_on_its_order() -> None:
    class Part(Config):
        number: Param[int]
        path: Meta[Path] = field(default_factory=PathGenerator("part.txt"))

    class Whole(Config):
        parts: Param[set[Part]]

    def places(numbers: list[int]) -> dict[int, Path]:
        made = [Part.C(number=number) for number in numbers]
        return {part.number: part.path for part in Whole.C(parts=set(made)).instance("/d").parts}

    assert places(list(range(20))) == places(list(reversed(range(20))))
    assert len(set(places(list(range(20))).values())) == 20


class Polymorphic(Config):
    size: Param[int]


class First(Polymorphic): ...


class Second(Polymorphic): ...


class Chosen(Config):
    model: Param[Polymorphic]


@pytest.mark.parametrize("names", [["model", "model.size"], ["model.size", "model"]])
def test_a_grid_varies_a_config_and_what_is_in_it(names: list[str]) -> None:
    values = {"model": [First, Second], "model.size": [1, 2]}
    made = grid(Chosen, {name: values[name] for name in names})
    assert len(made) == 4
    assert {(one.tags()["model"], one.tags()["size"], one.model.size) for one in made} == {
        (model, size, size) for model in ("First", "Second") for size in (1, 2)
    }


def test_a_tag_of_a_parameter_tells_the_class_of_its_new_config() -> None:
    holder = Chosen.C(model=First.C(size=1)).tag("model", "mine")
    holder.model = Second.C(size=1)
    assert holder.tags()["model"] == "Second"
