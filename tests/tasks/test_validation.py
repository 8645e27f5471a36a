"""Values are checked where they are set, and every refusal says what, why and where."""

import enum
import inspect
import math
import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Optional

import pytest

from tenuto import Choices, Config, LightweightTask, Meta, Param, PathGenerator, Task, field, identity
from tenuto.errors import (
    ConfigCycle,
    GraphError,
    InvalidValue,
    MissingValue,
    NoExperiment,
    NoResult,
    ParameterError,
    SealedConfig,
    TenutoError,
    UnknownParameter,
    UnsubmittedTask,
)


class Color(enum.Enum):
    RED = "red"


class Shade(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Leaf(Config):
    x: Param[int] = 0


class Other(Config):
    pass


class Of(Config):
    """One parameter for each type."""

    int_: Param[int]
    float_: Param[float]
    str_: Param[str]
    bool_: Param[bool]
    none: Param[None]
    path: Param[Path]
    color: Param[Color]
    level: Param[Level]
    rights: Param[Rights]
    ints: Param[list[int]]
    names: Param[set[str]]
    rates: Param[dict[str, float]]
    places: Param[dict[Path, int]]
    pair: Param[tuple[int, str]]
    many: Param[tuple[int, ...]]
    empty: Param[tuple[()]]
    nested: Param[dict[str, list[tuple[int, Leaf]]]]
    maybe: Param[Optional[int]]  # noqa: UP045
    maybe_path: Param[Path | None]
    either: Param[int | str]
    number: Param[float | int]
    literal: Param[Literal["a", 1]]
    chosen: Annotated[Param[str], Choices(["a", "b"])]
    leaf: Param[Leaf]
    anything: Param[Any]
    bare: Param[list]


class Index:
    """As numpy's integers: no int, but says which one it is."""

    def __index__(self) -> int:
        return 7


class Float32(float):
    """As numpy's float64: a subclass of float."""


class Text(str):
    __slots__ = ()


class Strange:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def here(offset: int = 0) -> str:
    """``file:line`` of the caller's line, plus an offset."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return f"{__file__}:{frame.f_back.f_lineno + offset}"


ACCEPTED: list[tuple[str, Any, Any]] = [
    ("int_", 1, 1),
    ("int_", -(10**100), -(10**100)),
    ("int_", Index(), 7),
    ("int_", Level.LOW, 1),
    ("float_", 0.5, 0.5),
    ("float_", 1, 1.0),
    ("float_", Index(), 7.0),
    ("float_", Float32(0.5), 0.5),
    ("float_", math.inf, math.inf),
    ("str_", "a", "a"),
    ("str_", Text("a"), "a"),
    ("str_", "", ""),
    ("bool_", True, True),
    ("none", None, None),
    ("path", Path("a"), Path("a")),
    ("path", "a/b", Path("a/b")),
    ("path", PurePosixPath("a"), Path("a")),
    ("color", Color.RED, Color.RED),
    ("level", Level.LOW, Level.LOW),
    ("rights", Rights.READ, Rights.READ),
    ("ints", [1, Index()], [1, 7]),
    ("ints", [], []),
    ("names", {"a"}, {"a"}),
    ("names", frozenset({"a"}), {"a"}),
    ("rates", {"a": 1}, {"a": 1.0}),
    ("places", {"a": 1}, {Path("a"): 1}),
    ("pair", (1, "a"), (1, "a")),
    ("many", (1, 2, 3), (1, 2, 3)),
    ("empty", (), ()),
    ("maybe", None, None),
    ("maybe", 3, 3),
    ("maybe_path", "a", Path("a")),
    ("either", 1, 1),
    ("either", "1", "1"),
    ("number", 1, 1),
    ("number", 1.0, 1.0),
    ("literal", "a", "a"),
    ("literal", 1, 1),
    ("chosen", "b", "b"),
    ("anything", {1: [(None, {"x"})]}, {1: [(None, {"x"})]}),
    ("anything", Index(), 7),
    ("bare", [1, "a", None], [1, "a", None]),
]


@pytest.mark.parametrize(("name", "given", "kept"), ACCEPTED)
def test_a_value_is_accepted_and_kept_as_its_type(name: str, given: Any, kept: Any) -> None:
    config = Of.C(**{name: given})
    found = getattr(config, name)
    assert found == kept
    live = config_value_alone(name, given)
    assert live == kept
    assert type(live) is type(kept)


def config_value_alone(name: str, given: Any) -> Any:
    """The value in a live object of a class with this one parameter."""
    declared = {"__annotations__": {name: Of.__annotations__[name]}, "__module__": __name__}
    return getattr(type(Config)("Alone", (Config,), declared).C(**{name: given}).instance(), name)


def test_nan_is_a_legal_float() -> None:
    assert math.isnan(Of.C(float_=math.nan).float_)


REFUSED: list[tuple[str, Any, str]] = [
    ("int_", True, "expects int, but got True (bool)"),
    ("int_", 1.0, "expects int, but got 1.0 (float)"),
    ("int_", "1", "expects int, but got '1' (str)"),
    ("int_", None, "expects int, but got None (NoneType)"),
    ("float_", True, "expects float, but got True (bool)"),
    ("float_", "1", "expects float, but got '1' (str)"),
    ("float_", 10**400, "expects float, but got 1000"),
    ("str_", 1, "expects str, but got 1 (int)"),
    ("str_", b"a", "expects str, but got b'a' (bytes)"),
    ("str_", Path("a"), "expects str, but got PosixPath('a') (PosixPath)"),
    ("bool_", 1, "expects bool, but got 1 (int)"),
    ("bool_", "true", "expects bool, but got 'true' (str)"),
    ("none", 0, "expects None, but got 0 (int)"),
    ("path", 1, "expects Path, but got 1 (int)"),
    ("path", "a\0b", "a path cannot contain a NUL character"),
    ("color", "red", "expects Color, but got 'red' (str); give a member such as Color.RED"),
    ("color", Shade.RED, "expects Color, but got <Shade.RED: 'red'> (Shade)"),
    ("level", 1, "expects Level, but got 1 (int)"),
    ("rights", Rights.READ | Rights.WRITE, "combined flags have no name of their own"),
    ("rights", Rights(0), "combined flags have no name of their own"),
    ("ints", (1, 2), "expects list[int], but got (1, 2) (tuple)"),
    ("ints", "ab", "expects list[int], but got 'ab' (str)"),
    ("ints", [1, 2, "x"], "expects int at [2], but got 'x' (str)"),
    ("names", ["a"], "expects set[str], but got ['a'] (list)"),
    ("names", {1}, "expects str at [0], but got 1 (int)"),
    ("rates", {"a": 1.0, "b": "x"}, "expects float at ['b'], but got 'x' (str)"),
    ("rates", {1: 1.0}, "expects str at [1], but got 1 (int)"),
    ("rates", [("a", 1.0)], "expects dict[str, float], but got [('a', 1.0)] (list)"),
    ("places", {"a": 1, Path("a"): 2}, "expects keys that differ once converted"),
    ("pair", (1,), "expects tuple[int, str], but got (1,) (tuple)"),
    ("pair", (1, 2), "expects str at [1], but got 2 (int)"),
    ("pair", [1, "a"], "expects tuple[int, str], but got [1, 'a'] (list)"),
    ("many", (1, "a"), "expects int at [1], but got 'a' (str)"),
    ("empty", (1,), "expects tuple[], but got (1,) (tuple)"),
    ("nested", {"k": [(1, Leaf.C()), (2, 3)]}, "expects Leaf at ['k'][1][1], but got 3 (int)"),
    ("maybe", "x", "expects int | None, but got 'x' (str)"),
    ("either", 1.5, "expects int | str, but got 1.5 (float)"),
    ("literal", "b", "expects Literal['a', 1], but got 'b' (str)"),
    ("literal", True, "expects Literal['a', 1], but got True (bool)"),
    ("chosen", "c", "expects one of 'a', 'b', but got 'c' (str)"),
    ("leaf", 3, "expects Leaf, but got 3 (int)"),
    ("leaf", Other.C(), "expects Leaf, but got Other.C() (Other)"),
    ("leaf", None, "expects Leaf, but got None (NoneType)"),
    ("leaf", Leaf, "expects Leaf, but got <class"),
    ("leaf", Leaf.C().instance(), "this is a live object: pass a configuration, made by Leaf.C(...)"),
    ("anything", object(), "expects a value that can be stored, but got <object"),
    ("anything", Leaf.C().instance(), "this is a live object"),
    ("anything", {frozenset({1})}, "expects a key or element that is not a set"),
    ("anything", {frozenset({1}): 1}, "expects a key or element that is not a set"),
    ("anything", {Leaf.C(): 1}, "expects a key that is not a config"),
    ("anything", Strange(), "<not representable> (Strange)"),
    ("int_", "x" * 1000, "…"),
]


@pytest.mark.parametrize(("name", "given", "message"), REFUSED)
def test_a_value_that_does_not_fit_is_refused_where_it_is_given(name: str, given: Any, message: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        Of.C(**{name: given})
    told, line = str(refused.value), here(-1)
    assert told.startswith(f"Of.{name} ")
    assert message in told
    assert told.endswith(f", at {line}")


@pytest.mark.parametrize(("name", "given", "message"), REFUSED)
def test_a_value_that_does_not_fit_is_refused_where_it_is_assigned(
    name: str, given: Any, message: str
) -> None:
    config = Of.C()
    with pytest.raises(InvalidValue) as refused:
        setattr(config, name, given)
    assert str(refused.value).endswith(f", at {here(-1)}")
    if name.startswith("maybe"):  # and nothing was kept
        assert getattr(config, name) is None
        return
    with pytest.raises(MissingValue):
        getattr(config, name)


def test_containers_nested_without_end_are_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidValue, match="nested at most 64 deep"):
        Of.C(anything=endless)


def test_a_config_keeps_a_copy_of_a_given_list() -> None:
    given = [1]
    config = Of.C(ints=given)
    given.append(2)
    assert config.ints == [1]


def test_an_unknown_parameter_is_refused_with_a_suggestion() -> None:
    class Train(Task):
        learning_rate: Param[float]
        epochs: Param[int] = 1

    with pytest.raises(UnknownParameter) as refused:
        Train.C(learning_rat=0.1)
    assert str(refused.value) == (
        f"Train has no parameter 'learning_rat', at {here(-2)}: did you mean 'learning_rate'?"
    )
    with pytest.raises(UnknownParameter, match="its parameters are learning_rate, epochs"):
        Train.C(zzz=1)
    with pytest.raises(UnknownParameter, match="it has no parameters"):
        Other.C(x=1)
    config = Train.C()
    with pytest.raises(UnknownParameter, match="did you mean 'epochs'"):
        config.epoch = 3
    with pytest.raises(UnknownParameter, match="has no attribute 'epoch': did you mean 'epochs'"):
        config.epoch
    with pytest.raises(UnknownParameter, match=r"takes parameters by name, but got 3 \(int\)"):
        Train.C(3)


def test_a_parameter_cannot_be_deleted() -> None:
    leaf = Leaf.C(x=1)
    with pytest.raises(ParameterError, match=r"Leaf\.x cannot be deleted"):
        del leaf.x


# -- missing values ----------------------------------------------------------------------------------


class Needs(Task):
    x: Param[int]
    note: Meta[str]


class Wraps(Task):
    needs: Param[Needs | None] = None
    inner: Param[Leaf | None] = None


@pytest.mark.parametrize(
    "use",
    [
        identity,
        lambda config: config.seal(),
        lambda config: config.instance(),
        lambda config: config.submit(),
    ],
    ids=["identity", "seal", "instance", "submit"],
)
@pytest.mark.parametrize("is_nested", [False, True])
def test_a_missing_value_is_named(use: Callable[[Any], Any], is_nested: bool, experiment: Any) -> None:
    config: Any = Needs.C(note="n")
    with pytest.raises(MissingValue) as refused:
        use(Wraps.C(needs=config) if is_nested else config)
    assert re.match(r"Needs\.x has no value, at .*test_validation\.py:\d+: give it one", str(refused.value))
    assert experiment.submitted == []


def test_a_missing_meta_value_does_not_count_but_must_be_there_to_run() -> None:
    config = Needs.C(x=1)
    assert identity(config) == identity(Needs.C(x=1, note="n"))
    with pytest.raises(MissingValue, match=r"Needs\.note has no value"):
        config.seal()


def test_reading_what_has_no_value_yet_is_an_error() -> None:
    with pytest.raises(MissingValue, match=r"Needs\.x has no value yet"):
        Needs.C().x
    assert not hasattr(Needs.C(), "x")


def test_submitting_without_an_experiment_says_what_to_do() -> None:
    with pytest.raises(NoExperiment, match=r"with experiment\("):
        Needs.C(x=1, note="n").submit()


# -- sealed ------------------------------------------------------------------------------------------


def test_a_sealed_config_refuses_changes() -> None:
    leaf = Leaf.C(x=1).seal()
    with pytest.raises(SealedConfig) as refused:
        leaf.x = 2
    told = str(refused.value)
    assert f"at {here(-2)}" in told
    assert "copyconfig(config, x=...)" in told
    assert leaf.x == 1


def test_sealing_closes_everything_below() -> None:
    inner = Leaf.C(x=1)
    Wraps.C(inner=inner).seal()
    with pytest.raises(SealedConfig):
        inner.x = 2


@pytest.mark.parametrize(
    ("kept", "change"),
    [
        ([1], lambda v: v.append(2)),
        ([1], lambda v: v.__setitem__(0, 2)),
        ([1], lambda v: v.sort()),
        ([1], lambda v: v.__iadd__([2])),
        ({"a": 1}, lambda v: v.update(b=2)),
        ({"a": 1}, lambda v: v.__setitem__("a", 2)),
        ({"a": 1}, lambda v: v.pop("a")),
        ({"a": 1}, lambda v: v.__ior__({"b": 1})),
        ({"a"}, lambda v: v.add("b")),
        ({"a"}, lambda v: v.__ior__({"b"})),
        ([[1]], lambda v: v[0].append(2)),
    ],
)
def test_containers_are_read_only_in_place(kept: Any, change: Callable[[Any], Any]) -> None:
    config = Of.C(anything=kept)
    with pytest.raises(TypeError, match="inside a config cannot be changed in place: assign a new"):
        change(config.anything)
    assert config.anything == kept


@pytest.mark.parametrize(
    ("name", "kept", "change"),
    [
        ("ints", [1], lambda v: v.append(2)),
        ("names", {"a"}, lambda v: v.add("b")),
        ("rates", {"a": 1.0}, lambda v: v.clear()),
        ("nested", {"k": [(1, Leaf.C())]}, lambda v: v["k"].clear()),
    ],
)
def test_typed_containers_are_read_only_in_place(name: str, kept: Any, change: Callable[[Any], Any]) -> None:
    config = Of.C(**{name: kept})
    with pytest.raises(TypeError, match="cannot be changed in place"):
        change(getattr(config, name))


def test_containers_of_a_live_object_are_plain() -> None:
    class Plain(Config):
        value: Param[Any]

    live = Plain.C(value=[{"a": {1}}]).instance()
    live.value[0]["a"].add(2)
    assert live.value == [{"a": {1, 2}}]
    assert [type(live.value), type(live.value[0])] == [list, dict]


class Picky(Config):
    low: Param[int]
    high: Param[int]
    below: Param[Leaf | None] = None

    def __validate__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"low {self.low} is above high {self.high}")


@pytest.mark.parametrize("use", [lambda c: c.seal(), lambda c: c.instance()])
def test_an_error_of_validate_becomes_ours(use: Callable[[Any], Any]) -> None:
    use(Picky.C(low=1, high=2))
    with pytest.raises(
        InvalidValue, match=r"Picky is not valid: low 3 is above high 2, at .*:\d+"
    ) as refused:
        use(Picky.C(low=3, high=2))
    assert isinstance(refused.value.__cause__, ValueError)


def test_validate_may_raise_our_errors_and_fill_in_values() -> None:
    class Fills(Config):
        x: Param[int] = 0
        leaf: Param[Leaf | None] = None

        def __validate__(self) -> None:
            if self.x < 0:
                raise GraphError("mine")
            self.leaf = Leaf.C(x=self.x)

    config = Fills.C(x=3).seal()
    assert config.leaf.x == 3
    with pytest.raises(SealedConfig):
        config.leaf.x = 4
    with pytest.raises(GraphError, match=r"^mine$"):
        Fills.C(x=-1).seal()


@pytest.mark.parametrize("broken", [Picky.C(low=3, high=2), Picky.C(low=3)])
def test_a_refused_seal_leaves_everything_open(broken: Any) -> None:
    class Pair(Config):
        fine: Param[Leaf]
        broken: Param[Picky]

    leaf = Leaf.C(x=1)
    pair = Pair.C(fine=leaf, broken=broken)
    with pytest.raises(TenutoError):
        pair.seal()
    leaf.x = 2
    pair.fine = Leaf.C(x=3)
    broken.below = leaf
    assert pair.fine.x == 3


# -- how configs are connected -----------------------------------------------------------------------


class Uses(Task):
    task: Param[Needs]
    more: Param[list[Any]] = field(default_factory=list)
    out: Meta[Path] = field(default_factory=PathGenerator("out"))


class Holds(Config):
    task: Param[Needs]


class Around(Task):
    holds: Param[Holds]


def needs() -> Needs:
    return Needs.C(x=1, note="n")


def test_an_unsubmitted_task_is_refused_as_a_result(experiment: Any) -> None:
    task = needs()
    uses = Uses.C(task=task)
    with pytest.raises(UnsubmittedTask) as refused:
        uses.submit()
    told = str(refused.value)
    assert told.startswith("Uses uses the result of the task Needs (parameter task), which was not submitted")
    assert f"at {here(-3)}" in told
    assert "pass Needs.C(...).submit() instead" in told
    with pytest.raises(UnsubmittedTask, match="Around uses the result of the task Needs"):
        Around.C(holds=Holds.C(task=task)).submit()
    with pytest.raises(UnsubmittedTask, match=r"parameter more\[0\]"):
        Uses.C(task=needs().submit(), more=[needs()]).submit()
    task.x = 5  # the refusals left it open
    task.submit()
    uses.submit()
    assert uses.job is not None


def test_a_task_without_a_job_says_so() -> None:
    with pytest.raises(GraphError, match="Needs was not submitted, so it has no job"):
        needs().job


class Ring(Config):
    next: Param[Any]


@pytest.mark.parametrize(
    "use",
    [identity, lambda c: c.seal(), lambda c: c.instance(), lambda c: c.tags()],
    ids=["identity", "seal", "instance", "tags"],
)
def test_a_cycle_names_the_path(use: Callable[[Any], Any]) -> None:
    first = Ring.C()
    first.next = [Ring.C(next={"k": first})]
    with pytest.raises(ConfigCycle, match=r"Ring contains itself, through Ring\.next\[0\]\.next\['k'\]"):
        use(first)
    with pytest.raises(ConfigCycle):
        use(Ring.C(next=first))


def test_a_long_cycle_is_told_in_short() -> None:
    first = last = Ring.C()
    for _ in range(5000):
        last.next = Ring.C()
        last = last.next
    last.next = first
    with pytest.raises(ConfigCycle, match="…") as refused:
        identity(first)
    assert len(str(refused.value)) < 300


def test_init_tasks_must_be_lightweight_configs(experiment: Any) -> None:
    class SetUp(LightweightTask):
        x: Param[int]

    for wrong in (Leaf.C(), SetUp, SetUp.C(x=1).instance(), 3):
        with pytest.raises(ParameterError, match=r"init_tasks\[0\] of Needs must be a LightweightTask"):
            needs().submit(init_tasks=[wrong])
    with pytest.raises(MissingValue, match=r"SetUp\.x"):
        needs().submit(init_tasks=[SetUp.C()])
    assert experiment.submitted == []


class Judged(Config):
    x: Param[int]

    def __validate__(self) -> bool:
        return self.x > 0


def test_a_validation_that_says_false_refuses() -> None:
    Judged.C(x=1).seal()
    with pytest.raises(InvalidValue, match="Judged is not valid: its __validate__ says False"):
        Judged.C(x=0).seal()


def test_a_config_that_is_submitted_is_told_what_it_lacks() -> None:
    for name in ("submit", "result", "job"):
        with pytest.raises(UnknownParameter, match="derive it from Task"):
            getattr(Judged.C(x=1), name)


def test_a_task_that_was_not_submitted_has_no_result() -> None:
    class Unsent(Task):
        def execute(self) -> int:
            return 1

    with pytest.raises(NoResult, match="Unsent has no result, at"):
        Unsent.C().result()
