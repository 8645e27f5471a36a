"""What both checkers must accept, with the types they must see. Read by test_checkers.py, never imported."""

from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar, assert_type

import tenuto
from tenuto import (
    Choices,
    CommandTask,
    Config,
    Constant,
    DataPath,
    LightweightTask,
    Meta,
    Option,
    Output,
    Param,
    PathGenerator,
    ResumableTask,
    Task,
    cache,
    copyconfig,
    deprecate,
    explain,
    field,
    grid,
    help,
    identity,
    initializer,
    input_file,
    options,
    param_group,
    partial,
    progress,
    setmeta,
    stop_tags,
    sweep,
    tag,
    tags,
    task,
    tqdm,
)

T = TypeVar("T")
SEEDS = param_group("seeds")


class Kind(Enum):
    SMALL = "small"


class Dataset(Config):
    name: Param[str]
    size: Param[int] = 60_000
    kind: Param[Kind] = Kind.SMALL
    split: Param[Literal["train", "test"]] = "train"


class Box(Config, Generic[T]):
    item: Param[T]


class Warm(LightweightTask):
    def execute(self) -> None: ...


class Train(ResumableTask):
    """Every way to write a parameter."""

    data: Param[Dataset]
    lr: Param[float]
    epochs: Param[int] = 10
    note: Meta[str] = ""
    verbose: Option[bool] = False
    version: Constant[int] = 2
    seed: Param[int] = field(default=3, help="where randomness starts", groups=[SEEDS])
    layers: Param[list[int]] = field(default_factory=list)
    limit: Param[int | None] = None
    optimiser: Annotated[Param[str], Choices(["sgd", "adam"]), help("how to descend")] = "sgd"
    corpus: DataPath = Path("corpus.txt")
    extra: DataPath[Path | None] = None
    checkpoint: Meta[Path] = field(default_factory=PathGenerator("model.pt"))
    family = partial(exclude_groups=[SEEDS])
    common: Meta[Path] = field(default_factory=PathGenerator("common.pt", partial=family))

    def execute(self) -> float:
        assert_type(self.lr, float)
        assert_type(self.job_attempt, int)
        return self.lr

    @initializer
    def prepare(self, how: str) -> int:
        return len(how)

    @cache("table.txt")
    def table(self, path: Path, column: int) -> str:
        return path.read_text()


class Learn(Task[Dataset]):
    n: Param[int]

    def task_outputs(self, dep: Callable[[Dataset], Dataset]) -> Dataset:
        return dep(Dataset.C(name="made"))


class Longer(Train):
    """Inherits the parameters, and gives one another default."""

    epochs: Param[int] = 100
    patience: Param[int] = 3


class Pipeline(Task):
    """Made to be composed: a checker wants a default where ``@`` will put the value."""

    data: Param[Dataset | None] = None


class Evaluate(Task):
    model: Param[Train]

    @deprecate
    def learner(self, value: Train) -> None:
        self.model = value


@deprecate
class OldDataset(Dataset): ...


@task
def fit(lr: float, data: Dataset, epochs: int = 2) -> dict[str, float]:
    return {"loss": lr * epochs}


@task(id="my.fit")
def named(lr: float) -> float:
    return lr


@task
async def later(lr: float) -> float:
    return lr


@task
def best(one: Task, others: list[Task]) -> float:
    return max(float(each.result()) for each in (one, *others))


best.C(one=named.C(lr=0.1), others=[later.C(lr=0.1), named.C(lr=0.2)])


class Saves(ResumableTask):
    model: Meta[Path] = Output("model.pt")
    plain: Path = Output("plain.pt")

    def execute(self) -> int:
        self.checkpoint.save(1)
        return len(self.model.name + self.plain.name)


# Making

mnist = Dataset.C(name="mnist")
train = Train.C(data=mnist, lr=0.1)
assert_type(mnist, Dataset)
assert_type(train, Train)
Train.C(data=Dataset.C(name="m", size=3), lr=1, limit=None, layers=[1, 2], checkpoint=Path("elsewhere.pt"))
Train.C(data=OldDataset.C(name="m"), lr=tag(0.1))
assert_type(Longer.C(data=mnist, lr=0.1, patience=4), Longer)
assert_type(OldDataset.C(name="m"), OldDataset)
assert_type(Box[int].C(item=1), Box[int])
assert_type(Box[int].C(item=1).item, int)

# Reading and changing

assert_type(train.data, Dataset)
assert_type(train.data.size, int)
assert_type(train.note, str)
assert_type(train.verbose, bool)
assert_type(train.version, int)
assert_type(train.layers, list[int])
assert_type(train.limit, int | None)
assert_type(train.optimiser, str)
assert_type(train.corpus, Path)
assert_type(train.extra, Path | None)
train.lr = 0.2
train.limit = 4

# Working with it

assert_type(train.seal(), Train)
assert_type(train.copy(), Train)
assert_type(train.tag("lr", 0.1).tag("a", None), Train)
assert_type(train.tags(), dict[str, Any])
assert_type(train.instance(), Train)
assert_type(train.instance(Path("here")), Train)
assert_type(Pipeline.C() @ mnist, Pipeline)
assert_type(copyconfig(train, lr=0.3), Train)
assert_type(setmeta(mnist.copy(), True), Dataset)
assert_type(stop_tags(mnist.copy()), Dataset)
assert_type(tags(train), dict[str, Any])
assert_type(identity(train), str)
assert_type(explain(train, train).same, bool)
assert_type(grid(Train, {"lr": [0.1, 0.2], "epochs": range(3)}, data=mnist), list[Train])
assert_type(grid(train, {"lr": [0.1, 0.2]}), list[Train])
assert_type(train.instance().prepare("quickly"), int)

# Submitting

assert_type(train.submit(), Train)
assert_type(train.submit(init_tasks=[Warm.C()], max_retries=3), Train)
assert_type(Longer.C(data=mnist, lr=0.1).submit(), Longer)
assert_type(Learn.C(n=3).submit(), Dataset)
assert_type(train.submit().result(), float)
assert_type(Evaluate.C(model=train.submit()).submit(), Evaluate)
assert_type(train.jobpath, Path)
assert_type(train.checkpoint, Path)
assert_type(train.instance().table(3), str)
assert_type(CommandTask.C(command=["true"], files={"a": input_file("a")}).submit(), CommandTask)
assert_type(tenuto.__version__, str)

# Progress

for word in tqdm(["a", "b"], "words", total=2):
    assert_type(word, str)
with tqdm(total=10, unit="B") as bar:
    assert_type(bar, tqdm[Any])
    bar.update(5)
    bar.set_postfix(loss=0.1)
progress(0.5, desc="half of it")

# Functions, and short spellings
assert_type(fit(0.1, mnist), dict[str, float])
assert_type(fit.C(lr=0.1, data=mnist).submit().result(), dict[str, float])
assert_type(fit.C(lr=0.1, data=mnist).tag("lr", 0.1).tags(), dict[str, Any])
assert_type(named.C(lr=0.1).result(), float)
assert_type(later.C(lr=0.1).submit().result(), float)
assert_type(grid(named, {"lr": [0.1]}, seeds=2)[0].submit().result(), float)
assert_type(Saves.C().result(), int)
assert_type(Saves.C().model, Path)
assert_type(options(lr=sweep(0.1)).lr, Any)
assert_type(sweep(0.1, 0.2), list[float])
assert_type(grid(Train, {"lr": [0.1]}, zip=True, sample=1, seeds=5), list[Train])
