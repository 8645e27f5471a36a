"""How classes are declared: what is understood, and what is refused with a sentence."""

import collections
import dataclasses
import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Generic, NewType, Optional, TypeVar

import pytest

from tenuto import (
    Choices,
    CommandTask,
    Config,
    Constant,
    DataPath,
    InputFile,
    LightweightTask,
    Meta,
    Option,
    Param,
    PathGenerator,
    Prepare,
    ResumableTask,
    Task,
    describe_config,
    field,
    help,
    identity,
    input_file,
    param_group,
    partial,
    pathgenerator,
)
from tenuto.errors import DeclarationError, GraphError, InvalidValue, ParameterError, UnknownParameter
from tenuto.tasks.schema import schema_of
from tests.tasks.future_annotations import Later, Node

T = TypeVar("T")
U = TypeVar("U")


class Early(Config):
    """Names a class of this module that is defined further down."""

    late: "Param[Late]"
    own: Param[Optional["Early"]] = None


class Late(Config):
    x: Param[int]


class Model(Config):
    size: Param[int] = 1


class BigModel(Model):
    depth: Param[int] = 2


Bound = TypeVar("Bound", bound=Model)
Chosen = TypeVar("Chosen", int, str)


class Box(Config, Generic[T]):
    value: Param[T]


class Both(Config, Generic[T, U]):
    first: Param[T]
    second: Param[U]


class ModelBox(Config, Generic[Bound]):
    value: Param[Bound]


class ChosenBox(Config, Generic[Chosen]):
    value: Param[Chosen]


class IntBox(Box[int]):
    pass


class NameBox(Box[T]):
    name: Param[str] = "n"


class ListBox(Box[list[T]], Generic[T]):
    pass


class Swapped(Both[U, T]):
    pass


# -- the kinds of classes ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Config, Task, ResumableTask, LightweightTask, Prepare, CommandTask])
def test_every_kind_of_class_takes_parameters(kind: Any) -> None:
    class Mine(kind):
        x: Param[int] = 3

    given = {"command": ["true"]} if kind is CommandTask else {}
    config = Mine.C(**given)
    assert isinstance(config, Mine)
    assert isinstance(config, kind)
    assert config.x == 3
    assert type(config.instance()) is Mine


@pytest.mark.parametrize("kind", [Task, LightweightTask, Prepare])
def test_a_task_without_execute_says_so(kind: Any) -> None:
    class Idle(kind):
        pass

    with pytest.raises(NotImplementedError, match=r"Idle does not define execute\(\)"):
        Idle.C().instance().execute()


def test_a_config_class_is_only_called_through_c() -> None:
    with pytest.raises(ParameterError, match=r"write Model\.C\(\.\.\.\)"):
        Model(size=1)


def test_c_is_one_class_that_keeps_the_name() -> None:
    assert Model.C is Model.C
    assert Model.C.C is Model.C
    assert issubclass(Model.C, Model)
    assert (Model.C.__name__, Model.C.__module__) == ("Model", __name__)


def test_a_command_task_needs_a_program_and_safe_file_names(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("hello")
    file = input_file(tmp_path / "in")
    assert isinstance(file, InputFile)
    CommandTask.C(command=["cat", "in"], files={"in": file}).seal()
    with pytest.raises(InvalidValue, match="command is empty"):
        CommandTask.C(command=[]).seal()
    for name in ("/etc/passwd", "../up", "a/../../b", "", "nul\0"):
        with pytest.raises(InvalidValue, match="must be relative"):
            CommandTask.C(command=["cat"], files={name: file}).seal()


def test_an_input_file_is_counted_by_content(tmp_path: Path) -> None:
    for name, content in {"a": "same", "b": "same", "c": "other"}.items():
        (tmp_path / name).write_text(content)
    first, second, other = (identity(input_file(tmp_path / name)) for name in "abc")
    assert first == second != other
    with pytest.raises(ParameterError, match="cannot be read"):
        input_file(tmp_path / "missing")


# -- parameters --------------------------------------------------------------------------------------


class AllHints(Config):
    param: Param[int]
    meta: Meta[int] = 1
    option: Option[int] = 2
    constant: Constant[int] = 3
    data: DataPath = Path("data")
    data_of: DataPath[Path] = Path("more")
    chosen: Annotated[Param[str], Choices(["a", "b"]), help("which")] = "a"
    made: Meta[Path] = field(default_factory=PathGenerator("made"))
    made_by_hint: Annotated[Path, pathgenerator("hinted")]
    fresh: Param[list[int]] = field(default_factory=list)
    not_a_parameter: int = 9
    also_not: "int"


def test_all_the_hints_are_read() -> None:
    parameters = schema_of(AllHints).parameters
    roles = {name: parameter.role.name for name, parameter in parameters.items()}
    assert roles == {
        "param": "PARAM",
        "meta": "META",
        "option": "META",
        "constant": "CONSTANT",
        "data": "DATA",
        "data_of": "DATA",
        "chosen": "PARAM",
        "made": "META",
        "made_by_hint": "META",
        "fresh": "PARAM",
    }
    assert [name for name, parameter in parameters.items() if parameter.required] == ["param"]
    assert AllHints.not_a_parameter == 9


def test_every_config_gets_its_own_factory_value() -> None:
    assert AllHints.C(param=1).fresh is not AllHints.C(param=1).fresh


def test_a_constant_needs_a_value_and_takes_no_other() -> None:
    class Valueless(Config):
        version: Constant[int]

    with pytest.raises(DeclarationError, match=r"Valueless\.version is a Constant and needs a value"):
        Valueless.C()
    with pytest.raises(InvalidValue, match=r"AllHints\.constant is a Constant"):
        AllHints.C(param=1, constant=3)
    config = AllHints.C(param=1)
    with pytest.raises(InvalidValue, match="is a Constant"):
        config.constant = 4


def test_the_default_must_fit_the_type() -> None:
    class Wrong(Config):
        x: Param[int] = "three"

    with pytest.raises(DeclarationError, match=r"the default of .*Wrong\.x expects int, but got 'three'"):
        Wrong.C()


def test_a_default_and_choices_must_fit_each_other() -> None:
    class BadDefault(Config):
        x: Annotated[Param[str], Choices(["a"])] = "b"

    class BadChoice(Config):
        x: Annotated[Param[int], Choices(["a"])]

    class Converted(Config):
        rate: Annotated[Param[float], Choices([0, 1])]

    with pytest.raises(DeclarationError, match="expects one of 'a'"):
        BadDefault.C()
    with pytest.raises(DeclarationError, match=r"a choice of .*BadChoice\.x expects int"):
        BadChoice.C()
    assert Converted.C(rate=1).rate == 1.0
    with pytest.raises(DeclarationError, match="at least one value"):
        Choices([])


def test_field_takes_one_kind_of_default() -> None:
    with pytest.raises(DeclarationError, match="a default or a default_factory, not both"):
        field(default=1, default_factory=int)  # type: ignore[call-overload]


@pytest.mark.parametrize("path", ["/abs", "../up", "a/../../b", "nul\0"])
def test_a_generated_path_stays_in_the_job(path: str) -> None:
    with pytest.raises(DeclarationError, match="stays inside the job's directory"):
        PathGenerator(path)


def test_the_function_of_a_generated_path_takes_the_config_at_most() -> None:
    with pytest.raises(DeclarationError, match="is given the config, or nothing"):
        PathGenerator(lambda context, config: "model.pt")
    assert PathGenerator(lambda config, name="model.pt": name).place(None) == "model.pt"


def test_a_partial_needs_a_group() -> None:
    with pytest.raises(DeclarationError, match="at least one group"):
        partial(exclude_groups=[])


def test_an_init_with_arguments_is_refused() -> None:
    with pytest.raises(DeclarationError, match="Config is built from its parameters, which are set when the"):

        class WithInit(Config):
            def __init__(self, size: int) -> None: ...

    with pytest.raises(DeclarationError, match="Config is built from its parameters, which are set when the"):

        class SetsItsParameter(Config):
            size: Param[int] = 1

            def __init__(self, size: int = 1) -> None:
                self.size = size  # whatever the config says


@pytest.mark.parametrize("name", ["seal", "copy", "tags", "instance", "submit", "execute", "job", "_state"])
def test_a_name_that_every_task_has_is_refused(name: str) -> None:
    made = type(Task)("Clash", (Task,), {"__annotations__": {name: Param[int]}, "__module__": __name__})
    with pytest.raises(DeclarationError, match=rf"Clash\.{name}: '{name}' is a name that every"):
        made.C()


@pytest.mark.parametrize("id", ["", 3, None.__class__])
def test_an_xpmid_is_a_text(id: Any) -> None:
    class Odd(Config):
        __xpmid__ = id

    with pytest.raises(DeclarationError, match="must be a non-empty string"):
        Odd.C()


@pytest.mark.parametrize(
    "annotation",
    [bytes, complex, Callable[[], int], Sequence[int], frozenset[int], type, collections.deque],
)
def test_a_type_that_cannot_be_kept_is_refused_with_a_sentence(annotation: Any) -> None:
    class Odd(Config):
        x: Param[annotation]

    with pytest.raises(DeclarationError, match=r"Odd\.x: .* cannot be the type of a parameter: use int, str"):
        Odd.C()


def test_a_name_that_nobody_knows_is_refused_with_a_sentence() -> None:
    class Odd(Config):
        x: "Param[Missing]"  # noqa: F821

    class Inner(Config):
        x: Param[Optional["Missing"]]  # noqa: F821

    with pytest.raises(DeclarationError, match=r"Odd\.x.*'Missing' is not defined.*TYPE_CHECKING"):
        Odd.C()
    with pytest.raises(DeclarationError, match=r"Inner\.x: the type .*Missing.* is not known here"):
        Inner.C()


def test_a_class_refused_too_early_keeps_its_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hasty(Config):
        x: Param[int] = 3
        missing: "Param[DefinedLater | None]" = None  # noqa: F821

    with pytest.raises(DeclarationError):
        Hasty.C()
    monkeypatch.setitem(globals(), "DefinedLater", Late)
    assert Hasty.C().x == 3


def test_newtype_and_annotated_types_are_what_they_stand_for() -> None:
    class Aliased(Config):
        user: Param[NewType("UserId", int)]
        inner: Param[list[Annotated[int, "positive"]]]

    assert Aliased.C(user=1, inner=[2]).user == 1
    with pytest.raises(InvalidValue, match=r"inner expects int at \[0\]"):
        Aliased.C(user=1, inner=["x"])


# -- where annotations come from ---------------------------------------------------------------------


def test_annotations_may_be_text() -> None:
    node = Node.C(value=1, left=Node.C(value=2), others=[Node.C(value=3)])
    node.later = Later.C(node=Node.C(value=4))
    with pytest.raises(InvalidValue, match=r"Node\.value expects int"):
        Node.C(value="1")
    with pytest.raises(InvalidValue, match="expects one of 'a', 'b'"):
        Later.C(node=node, mode="c")
    assert schema_of(Later).generators["log"].path == "log.txt"
    assert "plain" not in schema_of(Node).parameters


def test_a_class_may_name_itself_and_one_defined_later() -> None:
    early = Early.C(late=Late.C(x=1), own=Early.C(late=Late.C(x=2)))
    assert early.own.late.x == 2


def test_a_class_in_a_function_sees_the_names_of_the_function() -> None:
    class Shade(enum.Enum):
        DARK = 1

    class Inside(Config):
        shade: "Param[Shade]"
        again: Param[Optional["Inside"]] = None

    config = Inside.C(shade=Shade.DARK, again=Inside.C(shade=Shade.DARK))
    assert config.again.shade is Shade.DARK
    assert "<locals>.Inside" in schema_of(Inside).id


# -- inheritance -------------------------------------------------------------------------------------


class Named(Config):
    name: Param[str] = "name"


class Sized(Config):
    size: Param[int] = field(ignore_default=1, help="how big", groups=[param_group("g")])


class NamedAndSized(Named, Sized):
    extra: Param[int] = 0


def test_parameters_come_from_all_parents() -> None:
    assert set(schema_of(NamedAndSized).parameters) == {"name", "size", "extra"}
    config = NamedAndSized.C(name="a", size=2, extra=3)
    assert (config.name, config.size, config.extra) == ("a", 2, 3)


def test_a_child_may_change_only_the_default() -> None:
    class Bigger(Sized):
        size = 5

    assert (Bigger.C().size, Sized.C().size) == (5, 1)
    parameter = schema_of(Bigger).parameters["size"]
    assert parameter.groups == {"g"}
    assert describe_config(Bigger).parameters["size"].help == "how big"
    with pytest.raises(InvalidValue):
        Bigger.C(size="x")


def test_the_default_of_the_nearest_parent_wins() -> None:
    class Middle(Sized):
        size = 5

    class Last(Middle):
        pass

    class Mixed(Named, Middle):
        pass

    assert Last.C().size == Mixed.C().size == 5


@pytest.mark.parametrize("is_used_alone_first", [False, True])
def test_a_mixin_that_changes_a_default_does_so_whatever_was_used_before(is_used_alone_first: bool) -> None:
    class Bigger(Config):
        size = 5

    if is_used_alone_first:
        Bigger.C()

    class Mixed(Bigger, Sized):
        pass

    assert Mixed.C().size == 5
    assert "size" not in schema_of(Bigger).parameters


def test_a_child_may_change_where_a_path_is_generated() -> None:
    class Parent(Task):
        out: Meta[Path] = field(default_factory=PathGenerator("parent"))

    class Child(Parent):
        out = field(default_factory=PathGenerator("child"))

    class Fixed(Parent):
        out = Path("fixed")

    assert Child.C().instance("/d").out == Path("/d/child")
    assert Fixed.C().instance("/d").out == Path("fixed")
    assert identity(Fixed.C(out=Path("elsewhere"))) == identity(Fixed.C())


def test_a_child_may_narrow_the_type() -> None:
    class Parent(Config):
        model: Param[Model]

    class Child(Parent):
        model: Param[BigModel]

    Parent.C(model=Model.C())
    Child.C(model=BigModel.C())
    with pytest.raises(InvalidValue, match=r"Child\.model expects BigModel"):
        Child.C(model=Model.C())


def test_another_type_must_be_meant() -> None:
    class Other(Sized):
        size: Param[str] = "big"

    class Meant(Sized):
        size: Param[str] = field(default="big", overrides=True)

    with pytest.raises(DeclarationError, match=r"str instead of int.*field\(overrides=True\)"):
        Other.C()
    assert Meant.C().size == "big"


def test_annotations_of_the_metaclass_do_not_hide_those_of_a_class() -> None:
    metaclass = type(Sized)
    assert metaclass.__annotations__ is not None  # Python keeps them in the metaclass from now on
    try:

        class Larger(Sized):
            size = 5

        class Last(Larger):
            pass

        assert Last.C().size == 5
    finally:
        del metaclass.__annotations__


def test_a_method_cannot_hide_a_parameter() -> None:
    class Hiding(Sized):
        def size(self) -> int:
            return 1

    with pytest.raises(DeclarationError, match=r"Hiding\.size hides the parameter"):
        Hiding.C()


def test_an_abstract_class_is_a_type_but_makes_no_config() -> None:
    class Shape(Config, ABC):
        side: Param[int]

        @abstractmethod
        def area(self) -> int: ...

    class Square(Shape):
        def area(self) -> int:
            return int(self.side**2)

    class Drawing(Config):
        shape: Param[Shape]

    assert Drawing.C(shape=Square.C(side=3)).instance().shape.area() == 9
    with pytest.raises(ParameterError, match=r"Shape is abstract.*subclass that defines area"):
        Shape.C(side=3)


def test_a_plain_mixin_gives_methods() -> None:
    class Speaks:
        def speak(self) -> str:
            return f"size {self.size}"

    class Speaking(Speaks, Sized):
        pass

    assert Speaking.C(size=3).instance().speak() == "size 3"


def test_a_default_config_is_shared_and_so_closed() -> None:
    class Trainer(Config):
        model: Param[Model] = Model.C(size=3)

    trainer = Trainer.C()
    with pytest.raises(ParameterError, match="Model is sealed"):
        trainer.model.size = 4
    assert Trainer.C().model.size == 3


def test_a_default_config_must_be_complete() -> None:
    class Trainer(Config):
        late: Param[Late] = Late.C()

    with pytest.raises(DeclarationError, match=r"the default of .*Trainer\.late: Late\.x has no value"):
        Trainer.C()


# -- generics ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "fits", "refused"),
    [
        (lambda v: Box[int].C(value=v), 1, "x"),
        (lambda v: Box[list[int]].C(value=v), [1], ["x"]),
        (lambda v: Box[Box[int]].C(value=v), Box.C(value=1), Box.C(value="x")),
        (lambda v: IntBox.C(value=v), 1, "x"),
        (lambda v: NameBox[int].C(value=v), 1, "x"),
        (lambda v: ListBox[int].C(value=v), [1], ["x"]),
        (lambda v: ModelBox.C(value=v), BigModel.C(), Late.C(x=1)),
        (lambda v: ModelBox[BigModel].C(value=v), BigModel.C(), Model.C()),
        (lambda v: ChosenBox.C(value=v), "x", 1.5),
        (lambda v: ChosenBox[int].C(value=v), 1, "x"),
        (lambda v: Both[int, str].C(first=v, second="s"), 1, "x"),
        (lambda v: Swapped[int, str].C(first=v, second="s"), 1, "x"),
    ],
)
def test_type_variables_are_checked(make: Callable[[Any], Any], fits: Any, refused: Any) -> None:
    make(fits)
    with pytest.raises(InvalidValue, match="expects"):
        make(refused)


def test_an_open_type_variable_takes_any_value() -> None:
    for value in (1, "x", None, [1, {"a": Model.C()}], Model.C()):
        assert Box.C(value=value).value == value
        assert NameBox.C(value=value).value == value
        assert Swapped.C(first=value, second=1).first == value
    with pytest.raises(InvalidValue, match="a value that can be stored"):
        Box.C(value=object())


def test_a_generic_type_converts_as_any_other() -> None:
    assert type(Box[float].C(value=1).value) is float
    assert Box[Path].C(value="a").value == Path("a")


def test_a_parameter_of_a_generic_type_checks_what_is_inside() -> None:
    class Holder(Config):
        box: Param[Box[int]]
        boxes: Param[list[Box[str]]] = []

    Holder.C(box=Box.C(value=1), boxes=[Box.C(value="a")])
    Holder.C(box=IntBox.C(value=1))
    with pytest.raises(InvalidValue, match=r"Holder\.box expects int at \.value, but got 'x'"):
        Holder.C(box=Box.C(value="x"))
    with pytest.raises(InvalidValue, match=r"boxes expects str at \[0\]\.value"):
        Holder.C(box=Box.C(value=1), boxes=[Box.C(value=1)])


def test_a_generic_of_generics() -> None:
    class Inner(Config, Generic[T]):
        value: Param[T]

    class Outside(Config, Generic[T]):
        inner: Param[Inner[T]]

    class Closed(Outside[int]):
        pass

    Closed.C(inner=Inner.C(value=1))
    with pytest.raises(InvalidValue):
        Closed.C(inner=Inner.C(value="x"))
    with pytest.raises(InvalidValue):
        Outside[int].C(inner=Inner.C(value="x"))


def test_brackets_on_a_class_without_type_variables_are_refused() -> None:
    with pytest.raises(DeclarationError, match="Model has no type variables"):
        Model[int]  # type: ignore[type-arg]


# -- the classes of the documents, as they write them ------------------------------------------------


class GracefulTimeout(Exception):
    """Supplied here: the name comes with experiments."""


SAVED: dict[Path, int] = {}


def load_checkpoint(path: Path) -> int:
    return SAVED[path]


def save_checkpoint(path: Path, epoch: int) -> None:
    SAVED[path] = epoch
    path.write_text(str(epoch))


def train_one_epoch() -> None: ...


def train_step() -> None: ...


class LongTraining(ResumableTask):
    checkpoint: Meta[Path] = field(default_factory=PathGenerator("checkpoint.pth"))

    def execute(self):
        start_epoch = 0
        if self.checkpoint.exists():
            start_epoch = load_checkpoint(self.checkpoint)

        for epoch in range(start_epoch, self.epochs):
            remaining = self.remaining_time()
            if remaining is not None and remaining < 300:
                save_checkpoint(self.checkpoint, epoch)
                raise GracefulTimeout("Not enough time")

            train_one_epoch()
            save_checkpoint(self.checkpoint, epoch)


class Checkpoint(Config):
    step: Param[int]


class Validation(Config):
    def checkpoint(self, step: int) -> Checkpoint:
        return Checkpoint.C(step=step)

    def compute(self, step: int) -> None:
        self.register_task_output(self.checkpoint, step)


class Training(ResumableTask):
    validation: Param[Validation]

    def execute(self):
        for step in range(100):
            train_step()
            if step % 10 == 0:
                self.validation.compute(step)  # Calls register_task_output


class Evaluate(Task):
    checkpoint: Param[Checkpoint]


def test_long_training_of_the_documents_runs(tmp_path: Path, job: Any) -> None:
    class Short(LongTraining):
        epochs: Param[int]

    task = Short.C(epochs=3).instance(tmp_path)
    task.execute()
    assert (tmp_path / "checkpoint.pth").read_text() == "2"
    job.remaining = 10.0
    with pytest.raises(GracefulTimeout):
        task.execute()


def test_training_of_the_documents_registers_its_outputs(job: Any) -> None:
    training = Training.C(validation=Validation.C())
    training.watch_output(training.validation.checkpoint, print)
    training.instance().execute()
    assert [arguments for _, arguments in job.outputs] == [(step,) for step in range(0, 100, 10)]


def test_evaluate_of_the_documents_takes_a_checkpoint() -> None:
    assert Evaluate.C(checkpoint=Checkpoint.C(step=3)).checkpoint.step == 3
    with pytest.raises(UnknownParameter, match="did you mean 'checkpoint'"):
        Evaluate.C(checkpont=Checkpoint.C(step=3))


class Svc(Config):
    C: Param[float] = 1.0


class SvcOfTen(Svc):
    C = 10.0


class Ridge(Config):
    C: Param[float] = field(default=0.5)
    penalty: Param[str] = "l2"


def test_a_parameter_may_be_called_c_and_have_a_default() -> None:
    assert (Svc.C().C, Svc.C(C=2).C, SvcOfTen.C().C, Ridge.C().C) == (1.0, 2.0, 10.0, 0.5)
    assert (Svc.C(C=2).instance().C, Svc.C().instance().C) == (2.0, 1.0)
    assert Svc.C.C is Svc.C

    class Odd(Config):
        C = 3

    with pytest.raises(DeclarationError, match="makes configs: annotate it"):
        Odd.C()


# -- defaults that leave an identity alone -----------------------------------------------------------


class Bare(Config):
    __xpmid__ = "declaring.defaults"


class Defaults(Config):
    """The defaults that leave an identity alone, in each way to say so."""

    __xpmid__ = "declaring.defaults"
    size: Param[int] = field(default=3, ignore_default=True)
    names: Param[list[str]] = field(default_factory=lambda: ["a"], ignore_default=True)
    renewed: Param[int] = field(default=2, ignore_default=1)


class Maybe(Config):
    size: Param[int | None]


def test_a_default_is_ignored_by_a_flag_or_stands_beside_an_ignored_one() -> None:
    made = Defaults.C()
    assert (made.size, made.names, made.renewed) == (3, ["a"], 2)
    assert identity(made) != identity(Bare.C()), "2 counts"
    assert identity(Defaults.C(renewed=1)) == identity(Bare.C())
    assert identity(Defaults.C(renewed=1, size=4)) != identity(Bare.C())
    assert identity(Defaults.C(renewed=1, names=["b"])) != identity(Bare.C())
    assert Maybe.C().size is None


def test_an_impossible_value_is_a_value_error_too() -> None:
    with pytest.raises(ValueError, match="expects int"):
        Defaults.C(size="3")
    for kind in (ParameterError, GraphError):
        assert issubclass(kind, ValueError)


@pytest.mark.parametrize("options", [{}, {"slots": True}, {"frozen": True}, {"init": False}])
def test_a_config_that_is_made_a_dataclass_is_refused(options: dict[str, Any]) -> None:
    """The `__init__` of the dataclass gave the live object its defaults, whatever the config said."""
    with pytest.raises(DeclarationError, match=r"Fit is a Config, .*@dataclass"):

        @dataclasses.dataclass(**options)
        class Fit(Config):
            x: Param[int] = 3
