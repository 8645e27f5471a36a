"""The configs whose identities the golden file freezes: one case for each type and rule.

Each case is a function that builds its config anew. Cases are only ever added: to change one, or a
class that it uses, would hide a change of the identity itself.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, Optional, TypeVar, Union

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
    ResumableTask,
    Task,
    deprecate,
    field,
    former_identity,
    identity,
    param_group,
    partial,
    setmeta,
    stop_tags,
    tag,
)
from tenuto.tasks.identity import partial_identity

T = TypeVar("T")
B = TypeVar("B", bound="Leaf")
N = TypeVar("N", int, str)


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    YES = "yes"


class Leaf(Config):
    x: Param[int]


class OtherLeaf(Config):
    x: Param[int]


class Young(Leaf):
    y: Param[int] = 0


class Outer(Config):
    class Nested(Config):
        x: Param[int]


class Named(Config):
    __xpmid__ = "golden.named"
    x: Param[int]


class OfInt(Config):
    v: Param[int]


class OfFloat(Config):
    v: Param[float]


class OfStr(Config):
    v: Param[str]


class OfBool(Config):
    v: Param[bool]


class OfPath(Config):
    v: Param[Path]


class OfColor(Config):
    v: Param[Color]


class OfLevel(Config):
    v: Param[Level]


class OfWord(Config):
    v: Param[Word]


class OfList(Config):
    v: Param[list[int]]


class OfTuple(Config):
    v: Param[tuple[int, ...]]


class OfFixedTuple(Config):
    v: Param[tuple[int, str, float]]


class OfSet(Config):
    v: Param[set[str]]


class OfDict(Config):
    v: Param[dict[str, int]]


class OfAny(Config):
    v: Param[Any]


class OfLiteral(Config):
    v: Param[Literal["a", 1, True]]


class OfOptional(Config):
    v: Param[Optional[int]]  # noqa: UP045  the old spelling must count the same


class OfOptionalNow(Config):
    __xpmid__ = f"{OfOptional.__module__}.OfOptional"
    v: Param[int | None]


class OfUnion(Config):
    v: Param[Union[int, float, str]]  # noqa: UP007


class OfChoice(Config):
    v: Annotated[Param[str], Choices(["a", "b"])]


class OfLeaf(Config):
    leaf: Param[Leaf]


class OfTwo(Config):
    one: Param[Leaf]
    two: Param[Leaf]


class OfLeaves(Config):
    leaves: Param[list[Leaf]] = field(default_factory=list)
    by_name: Param[dict[str, Leaf]] = field(default_factory=dict)


class Box(Config, Generic[T]):
    value: Param[T]


class IntBox(Box[int]):
    pass


class LeafBox(Config, Generic[B]):
    value: Param[B]


class ChosenBox(Config, Generic[N]):
    value: Param[N]


class OfBox(Config):
    box: Param[Box[int]]


class Defaults(Config):
    plain: Param[int] = 1
    ignored: Param[int] = field(ignore_default=2)
    counted: Param[int] = field(default=3)
    made: Param[list[int]] = field(default_factory=lambda: [4])
    absent: Param[int | None] = None


class OfDefaultLeaf(Config):
    leaf: Param[Leaf] = Leaf.C(x=7)


class Fixed(Config):
    version: Constant[int] = 1


class FixedMore(Fixed):
    version = 2


class Uncounted(Config):
    x: Param[int]
    note: Meta[str] = "n"
    threads: Option[int] = 1
    data: DataPath = Path("d")
    made: Meta[Path] = field(default_factory=PathGenerator("made"))
    leaf: Meta[Leaf | None] = None


ITERATIONS = param_group("iterations")


class Model(Config):
    size: Param[int]
    steps: Param[int] = field(default=1, groups=[ITERATIONS])


class Learner(Task):
    checkpoints = partial(exclude_groups=[ITERATIONS])
    model: Param[Model]
    epochs: Param[int] = field(groups=[ITERATIONS])

    def execute(self) -> None: ...


class Resumed(ResumableTask):
    x: Param[int]


class Download(Task):
    url: Param[str]


class SetUp(LightweightTask):
    x: Param[int]


class New(Config):
    x: Param[int]
    y: Param[int] = 0


@deprecate
class Old(New):
    pass


@deprecate
class Older(Old):
    pass


@deprecate
class Converted(Config):
    z: Param[int]

    def __convert__(self) -> Config:
        return New.C(x=self.z)


@deprecate
class ConvertedTwice(Config):
    w: Param[int]

    def __convert__(self) -> Config:
        return Converted.C(z=self.w)


@deprecate(replace=True)
class Replaced(New):
    pass


class Renamed(Config):
    rate: Param[int]

    @deprecate
    def speed(self, value: int) -> None:
        """use rate"""
        self.rate = value


def output_of(task: Task, config: Config) -> Config:
    config._state.origin = task
    return config


def after(config: Config, *init_tasks: Config) -> Config:
    config._state.init_tasks = init_tasks
    return config


def twice(leaf: Leaf) -> OfTwo:
    return OfTwo.C(one=leaf, two=leaf)


def command(**more: Any) -> CommandTask:
    return CommandTask.C(command=["echo", "hello"], **more)


def a_file(content: str = "0", source: str = "/a") -> InputFile:
    return InputFile.C(sha256=content * 64, source=Path(source))


CASES: dict[str, Callable[[], Config | str | None]] = {
    # scalars
    "int zero": lambda: OfInt.C(v=0),
    "int one": lambda: OfInt.C(v=1),
    "int negative": lambda: OfInt.C(v=-255),
    "int huge": lambda: OfInt.C(v=10**400),
    "float": lambda: OfFloat.C(v=0.1),
    "float from int": lambda: OfFloat.C(v=1),
    "float zero": lambda: OfFloat.C(v=0.0),
    "float negative zero": lambda: OfFloat.C(v=-0.0),
    "float nan": lambda: OfFloat.C(v=math.nan),
    "float infinity": lambda: OfFloat.C(v=math.inf),
    "float minus infinity": lambda: OfFloat.C(v=-math.inf),
    "float smallest": lambda: OfFloat.C(v=5e-324),
    "str empty": lambda: OfStr.C(v=""),
    "str ascii": lambda: OfStr.C(v="hello"),
    "str unicode": lambda: OfStr.C(v="é 漢 🙂"),
    "str surrogate": lambda: OfStr.C(v="\ud800"),
    "str decomposed": lambda: OfStr.C(v="e\u0301"),
    "bool true": lambda: OfBool.C(v=True),
    "bool false": lambda: OfBool.C(v=False),
    "path relative": lambda: OfPath.C(v=Path("a/b")),
    "path absolute": lambda: OfPath.C(v=Path("/a/b")),
    "path from str": lambda: OfPath.C(v="a//b/."),
    "enum": lambda: OfColor.C(v=Color.RED),
    "enum other member": lambda: OfColor.C(v=Color.GREEN),
    "enum of int": lambda: OfLevel.C(v=Level.LOW),
    "enum of str": lambda: OfWord.C(v=Word.YES),
    "literal str": lambda: OfLiteral.C(v="a"),
    "literal int": lambda: OfLiteral.C(v=1),
    "literal bool": lambda: OfLiteral.C(v=True),
    "optional none": lambda: OfOptional.C(v=None),
    "optional value": lambda: OfOptional.C(v=1),
    "optional in the new spelling": lambda: OfOptionalNow.C(v=1),
    "union int": lambda: OfUnion.C(v=1),
    "union float": lambda: OfUnion.C(v=1.0),
    "union str": lambda: OfUnion.C(v="1"),
    "choice": lambda: OfChoice.C(v="a"),
    # containers
    "list empty": lambda: OfList.C(v=[]),
    "list": lambda: OfList.C(v=[1, 2, 3]),
    "list other order": lambda: OfList.C(v=[3, 2, 1]),
    "tuple empty": lambda: OfTuple.C(v=()),
    "tuple": lambda: OfTuple.C(v=(1, 2, 3)),
    "tuple of fixed types": lambda: OfFixedTuple.C(v=(1, "a", 2)),
    "set empty": lambda: OfSet.C(v=set()),
    "set": lambda: OfSet.C(v={"b", "a", "c"}),
    "dict empty": lambda: OfDict.C(v={}),
    "dict": lambda: OfDict.C(v={"b": 1, "a": 2}),
    "dict with many kinds of keys": lambda: OfAny.C(
        v={1: "int", 2.5: "float", "s": "str", None: "none", (1, "a"): "tuple", Path("p"): "path"}
    ),
    "any none": lambda: OfAny.C(v=None),
    "any int": lambda: OfAny.C(v=1),
    "any str": lambda: OfAny.C(v="1"),
    "any enum": lambda: OfAny.C(v=Color.RED),
    "any nested": lambda: OfAny.C(v=[{"a": (1, 2.0, {"x"})}, [[]], None, True]),
    "strings ab c": lambda: OfAny.C(v=("ab", "c")),
    "strings a bc": lambda: OfAny.C(v=("a", "bc")),
    # configs
    "config": lambda: Leaf.C(x=1),
    "config of another class": lambda: OtherLeaf.C(x=1),
    "subclass": lambda: Young.C(x=1),
    "subclass with its own parameter": lambda: Young.C(x=1, y=2),
    "class in a class": lambda: Outer.Nested.C(x=1),
    "xpmid": lambda: Named.C(x=1),
    "nested": lambda: OfLeaf.C(leaf=Leaf.C(x=1)),
    "nested subclass": lambda: OfLeaf.C(leaf=Young.C(x=1)),
    "shared": lambda: twice(Leaf.C(x=1)),
    "two that differ": lambda: OfTwo.C(one=Leaf.C(x=1), two=Leaf.C(x=2)),
    "list and dict of configs": lambda: OfLeaves.C(
        leaves=[Leaf.C(x=1), Leaf.C(x=2)], by_name={"a": Leaf.C(x=3)}
    ),
    "set of configs": lambda: OfAny.C(v={Leaf.C(x=2), Leaf.C(x=1)}),
    "generic": lambda: Box.C(value=1),
    "generic with its argument": lambda: Box[float].C(value=1),
    "generic of list": lambda: Box[list[int]].C(value=[1]),
    "subclass of a generic": lambda: IntBox.C(value=1),
    "bound type variable": lambda: LeafBox.C(value=Young.C(x=1)),
    "constrained type variable": lambda: ChosenBox.C(value="a"),
    "parameter of a generic type": lambda: OfBox.C(box=IntBox.C(value=1)),
    # defaults and constants
    "defaults": Defaults.C,
    "defaults given": lambda: Defaults.C(plain=1, ignored=2, counted=3, made=[4], absent=None),
    "plain default changed": lambda: Defaults.C(plain=9),
    "ignored default changed": lambda: Defaults.C(ignored=9),
    "counted default changed": lambda: Defaults.C(counted=9),
    "made default changed": lambda: Defaults.C(made=[]),
    "absent given": lambda: Defaults.C(absent=0),
    "default config": OfDefaultLeaf.C,
    "default config given anew": lambda: OfDefaultLeaf.C(leaf=Leaf.C(x=7)),
    "default config changed": lambda: OfDefaultLeaf.C(leaf=Leaf.C(x=8)),
    "constant": Fixed.C,
    "constant of a subclass": FixedMore.C,
    # what does not count
    "uncounted": lambda: Uncounted.C(x=1),
    "uncounted changed": lambda: Uncounted.C(
        x=1, note="m", threads=8, data=Path("e"), made=Path("f"), leaf=Leaf.C(x=1)
    ),
    "tagged": lambda: Uncounted.C(x=tag(1)).tag("a", "b"),
    "stopped tags": lambda: OfLeaf.C(leaf=stop_tags(Leaf.C(x=1).tag("a", 1))),
    "setmeta true": lambda: OfLeaf.C(leaf=setmeta(Leaf.C(x=1), True)),
    "setmeta false": lambda: Uncounted.C(x=1, leaf=setmeta(Leaf.C(x=1), False)),
    "setmeta true in a list": lambda: OfLeaves.C(leaves=[Leaf.C(x=1), setmeta(Leaf.C(x=2), True)]),
    "sealed": lambda: OfLeaf.C(leaf=Leaf.C(x=1)).seal(),
    # tasks
    "task": lambda: Download.C(url="u"),
    "resumable task": lambda: Resumed.C(x=1),
    "output of a task": lambda: output_of(Download.C(url="u"), Leaf.C(x=1)),
    "output of another task": lambda: output_of(Download.C(url="v"), Leaf.C(x=1)),
    "config that uses an output": lambda: OfLeaf.C(leaf=output_of(Download.C(url="u"), Leaf.C(x=1))),
    "one init task": lambda: after(Download.C(url="u"), SetUp.C(x=1)),
    "init tasks": lambda: after(Download.C(url="u"), SetUp.C(x=1), SetUp.C(x=2)),
    "init tasks in the other order": lambda: after(Download.C(url="u"), SetUp.C(x=2), SetUp.C(x=1)),
    "lightweight task": lambda: SetUp.C(x=1),
    "command": command,
    "command with files": lambda: command(files={"in.txt": a_file()}),
    "command with the file elsewhere": lambda: command(files={"in.txt": a_file(source="/b")}),
    "command with another file": lambda: command(files={"in.txt": a_file("1")}),
    "command with environment": lambda: command(environment={"A": "1"}),
    "command with a key": lambda: command(key="second"),
    "input file": a_file,
    # groups and partials
    "groups": lambda: Learner.C(model=Model.C(size=1), epochs=2),
    "groups changed": lambda: Learner.C(model=Model.C(size=1, steps=5), epochs=3),
    "partial": lambda: learner_partial(steps=1, epochs=2),
    "partial with excluded parameters changed": lambda: learner_partial(steps=5, epochs=3),
    # deprecated
    "successor": lambda: New.C(x=1),
    "deprecated class": lambda: Old.C(x=1),
    "deprecated class of a deprecated class": lambda: Older.C(x=1),
    "deprecated class converted": lambda: Converted.C(z=1),
    "deprecated class converted twice": lambda: ConvertedTwice.C(w=1),
    "deprecated class replaced": lambda: Replaced.C(x=1),
    "deprecated class nested": lambda: OfAny.C(v=Old.C(x=1)),
    "deprecated output of a task": lambda: output_of(Download.C(url="u"), Converted.C(z=1)),
    "former identity of a deprecated class": lambda: former_identity(Old.C(x=1)),
    "former identity of a converted class": lambda: former_identity(Converted.C(z=1)),
    "deprecated parameter": lambda: Renamed.C(speed=1),
    "parameter by its new name": lambda: Renamed.C(rate=1),
}


def learner_partial(steps: int, epochs: int) -> str:
    learner = Learner.C(model=Model.C(size=1, steps=steps), epochs=epochs)
    return partial_identity(learner, frozenset({ITERATIONS.name}))


def identity_of(case: str) -> str:
    built = CASES[case]()
    return identity(built) if isinstance(built, Config) else str(built)


EQUAL: list[tuple[str, ...]] = [
    ("path relative", "path from str"),
    ("optional value", "optional in the new spelling"),
    ("defaults", "defaults given"),
    ("default config", "default config given anew"),
    ("uncounted", "uncounted changed", "tagged"),
    ("nested", "stopped tags", "sealed"),
    ("command with files", "command with the file elsewhere"),
    ("partial", "partial with excluded parameters changed"),
    (
        "successor",
        "deprecated class",
        "deprecated class of a deprecated class",
        "deprecated class converted",
        "deprecated class converted twice",
        "deprecated class replaced",
    ),
    ("deprecated parameter", "parameter by its new name"),
]
"""The cases that must have one identity; all others must differ."""
