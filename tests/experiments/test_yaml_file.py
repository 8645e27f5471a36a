"""Owns how an experiment is read from YAML: types, overrides, grids, and errors that name file and key."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.errors import ExperimentFileError
from tenuto.experiments.grids import load_task, tasks_of
from tenuto.experiments.yaml_file import ExperimentFile, _override, _parse, read_experiment
from tenuto.tasks import tags

CODE = """
from enum import Enum
from pathlib import Path
from typing import Optional
from tenuto import Config, Constant, Param, Task

class Mode(Enum):
    FAST = 1

class Dataset(Config):
    size: Param[int]
    noise: Param[float] = 0.1

class Images(Dataset):
    folder: Param[Path]

class Train(Task):
    lr: Param[float]
    epochs: Param[int] = 10
    data: Param[Optional[Dataset]] = None
    mode: Param[Mode] = Mode.FAST
    layers: Param[tuple[int, int]] = (1, 2)
    labels: Param[set[str]] = set()
    parts: Param[list[Dataset]] = []
    named: Param[dict[str, Dataset]] = {}
    name: Param[str] = ""
    deep: Param[bool] = False
    version: Constant[int] = 1

class NotATask(Config):
    pass
"""

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Iterator[Write]:
    """Writes sweep.yaml beside a module of its own, and forgets the module afterwards."""
    path, known = list(sys.path), set(sys.modules)
    module = f"train_{abs(hash(tmp_path))}"
    (tmp_path / f"{module}.py").write_text(CODE)

    def write(text: str) -> Path:
        file = tmp_path / "sweep.yaml"
        file.write_text(text.replace("MODULE", module), encoding="utf-8")
        return file

    yield write
    sys.path[:] = path
    for name in set(sys.modules) - known:
        if name.startswith("train_"):
            del sys.modules[name]


def tasks(file: Path, *overrides: str) -> list[Any]:
    return tasks_of(read_experiment(file, overrides))


HEAD = "imports: [MODULE]\ntask: Train\n"


def test_a_grid_over_parameters(write: Write) -> None:
    file = write(
        HEAD
        + "parameters: {epochs: 3, data: {size: 5}}\ngrid_search:\n  lr: [0.1, 1e-2]\n  data.size: [1, 2]\n"
    )
    found = tasks(file)
    assert [(t.lr, t.data.size, t.epochs) for t in found] == [
        (0.1, 1, 3),
        (0.1, 2, 3),
        (0.01, 1, 3),
        (0.01, 2, 3),
    ]
    assert tags(found[-1]) == {"lr": 0.01, "size": 2}


def test_one_task_without_a_grid(write: Write) -> None:
    file = write("task: MODULE.Train\nname: first\nworkspace: main\nparameters: {lr: 1}\n")
    experiment = read_experiment(file)
    assert (experiment.name, experiment.workspace) == ("first", "main")
    assert [t.lr for t in tasks_of(experiment)] == [1.0]


def test_the_name_is_that_of_the_file(write: Write) -> None:
    assert read_experiment(write("task: x.Y")).name == "sweep"


@pytest.mark.parametrize("task", ["Train", "MODULE.Train", "MODULE:Train"])
def test_a_task_is_found_by_each_way_of_naming_it(write: Write, task: str) -> None:
    assert load_task(read_experiment(write(f"imports: [MODULE.py]\ntask: {task}"))).__name__ == "Train"


def test_values_take_the_declared_types(write: Write) -> None:
    [task] = tasks(
        write(
            HEAD + "parameters:\n  lr: 1\n  mode: FAST\n  layers: [3, 4]\n  labels: [a, b]\n"
            "  data: {class: Images, size: 3, folder: /data}\n"
            "  parts: [{size: 1}, {class: Images, size: 2, folder: x}]\n"
            "  named: {a: {size: 7}}\n  deep: true\n"
        )
    )
    assert (task.mode.name, task.layers, task.labels, task.deep) == ("FAST", (3, 4), {"a", "b"}, True)
    assert (type(task.data).__name__, task.data.folder) == ("Images", Path("/data"))
    assert [type(part).__name__ for part in task.parts] == ["Dataset", "Images"]
    assert task.named["a"].size == 7


def test_a_grid_may_be_nested_and_may_vary_configs(write: Write) -> None:
    nested = write(HEAD + "parameters: {lr: 1, data: {noise: 0}}\ngrid_search:\n  data:\n    size: [1, 2]\n")
    assert [t.data.size for t in tasks(nested)] == [1, 2]
    configs = write(
        HEAD + "parameters: {lr: 1}\ngrid_search:\n  data: [{size: 1}, {class: Images, size: 2, folder: f}]\n"
    )
    assert [type(t.data).__name__ for t in tasks(configs)] == ["Dataset", "Images"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1.", 1.0),
        (".5", 0.5),
        ("0x10", 16),
        ("0o10", 8),
        ("010", 10),
        ("no", "no"),
        ("on", "on"),
        ("True", True),
        ("1:30", "1:30"),
        ("2025-01-01", "2025-01-01"),
        ("1_000", "1_000"),
        ("~", None),
        ("", None),
        ("-.inf", -math.inf),
        ("[1, a, {b: 2.5}]", [1, "a", {"b": 2.5}]),
        ("'3'", "3"),
    ],
)
def test_values_follow_the_core_rules_of_yaml_1_2(text: str, value: object) -> None:
    found = _parse(text, "-c")[0]
    assert (found, type(found)) == (value, type(value))


# -- overrides ---------------------------------------------------------------------------------------

SWEEP = HEAD + "parameters: {epochs: 3, data: {size: 5}}\ngrid_search: {lr: [0.1, 1e-2]}\n"


def test_overrides_reach_parameters_and_keys(write: Write) -> None:
    experiment = read_experiment(
        write(SWEEP), ["data.size=7", "epochs=4", "name=other", "parameters.name=me"]
    )
    assert experiment.name == "other"
    assert {(t.data.size, t.epochs, t.name) for t in tasks_of(experiment)} == {(7, 4, "me")}


def test_an_override_of_a_varied_parameter_leaves_one_value_and_its_tag(write: Write) -> None:
    [task] = tasks(write(SWEEP), "lr=5e-1")
    assert (task.lr, tags(task)) == (0.5, {"lr": 0.5})
    nested = write(HEAD + "parameters: {lr: 1, data: {noise: 0}}\ngrid_search: {data: {size: [1, 2]}}\n")
    assert [t.data.size for t in tasks(nested, "data.size=9")] == [9]


def test_the_grid_itself_can_be_overridden(write: Write) -> None:
    assert [t.lr for t in tasks(write(SWEEP), "grid_search.lr=[1, 2, 3]")] == [1, 2, 3]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("lr", "-c lr: write an override as name=value"),
        ("=3", "-c =3: write an override"),
        ("a..b=3", "write an override"),
        ("epochs.x=3", "-c epochs.x=3: parameters.epochs is 3 (int), which has no parts"),
        ("epochs=[1", "-c epochs=[1:1: "),
        ("epochs=x", "-c epochs=x: parameters.epochs: Train.epochs expects int, but got 'x' (str)"),
        (
            "data.sise=3",
            "-c data.sise=3: parameters.data.sise: Dataset has no parameter 'sise'; did you mean 'size'?",
        ),
        ("epochs=!!python/object/apply:os.system ['x']", "could not determine a constructor"),
    ],
)
def test_an_override_that_does_not_fit_is_named(write: Write, override: str, message: str) -> None:
    with pytest.raises(ExperimentFileError) as caught:
        tasks(write(SWEEP), override)
    assert message in str(caught.value)


# -- what is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "sweep.yaml: expected keys such as task and parameters, but got nothing"),
        ("- a", "sweep.yaml: expected keys"),
        ("a: [", "sweep.yaml:1: "),
        ("name: x", "sweep.yaml: the key 'task' is missing"),
        ("task: 3", "sweep.yaml:1: task: expected the name of a task, such as train.Train, but got 3 (int)"),
        (
            "task: a.B\nparmeters: {}",
            "sweep.yaml:2: parmeters: there is no such key; did you mean 'parameters'?",
        ),
        ("task: a.B\ntask: c.D", "sweep.yaml:2: the key 'task' is there twice"),
        ("task: a.B\nimports: 3", "sweep.yaml:2: imports: expected a list of modules or files"),
        (
            "task: a.B\nparameters: [1]",
            "sweep.yaml:2: parameters: expected names with values, but got a list",
        ),
        ("task: a.B\nparameters: {1: 2}", "sweep.yaml:2: parameters: expected names with values"),
        ("task: a.B\ngrid_search: {lr: 1}", "sweep.yaml:2: grid_search.lr: expected a list of values to try"),
        ("task: a.B\ngrid_search: {lr: []}", "got an empty list"),
        ("task: a.B\ngrid_search: {a.b: [1], a: {b: [2]}}", "grid_search.a: a.b is varied twice"),
        ("task: !!python/name:os.system x", "could not determine a constructor"),
        ("task: nowhere_at_all.Train", "sweep.yaml:1: task: there is no module nowhere_at_all in"),
        ("task: Train", "task: there is no Train in no module: name one under imports"),
        ("imports: gone.py\ntask: Train", "sweep.yaml:1: imports: there is no file"),
        ("imports: [MODULE]\ntask: Trian", "sweep.yaml:2: task: there is no Trian in train_"),
        ("imports: [MODULE]\ntask: NotATask", "sweep.yaml:2: task: NotATask is not a task"),
        ("task: a.B\npre_experiment: gone.py", "sweep.yaml:2: pre_experiment: there is no file"),
        ("task: a.B\npre_experiment: gone", "neither a .py file nor module:function"),
        ("task: a.B\npre_experiment: os:gone", "os has no function gone"),
        (HEAD, "parameters: Train needs a value for lr, here or in grid_search"),
        (
            HEAD + "parameters:\n  lr: fast",
            "sweep.yaml:4: parameters.lr: Train.lr expects float, but got 'fast' (str)",
        ),
        (
            HEAD + "parameters:\n  lr: 1\n  deep: no",
            "parameters.deep: Train.deep expects bool, but got 'no' (str); write true",
        ),
        (
            HEAD + "parameters:\n  lr: 1\n  epoch: 2",
            "sweep.yaml:5: parameters.epoch: Train has no parameter 'epoch'; did",
        ),
        (HEAD + "parameters: {lr: 1, version: 2}", "Train.version is a Constant"),
        (
            HEAD + "parameters: {lr: 1, data: {}}",
            "sweep.yaml:3: parameters.data: Dataset needs a value for size",
        ),
        (
            HEAD + "parameters: {lr: 1, data: {class: Mode}}",
            "parameters.data.class: Mode is not a Config class",
        ),
        (HEAD + "parameters: {lr: 1, layers: [1, 2, 3]}", "Train.layers expects tuple[int, int]"),
        (HEAD + "parameters: {lr: 1, mode: SLOW}", "Train.mode expects Mode"),
        (
            HEAD + "grid_search:\n  lr: [1, x]",
            "sweep.yaml:4: grid_search.lr: Train.lr expects float, but got 'x'",
        ),
        (
            HEAD + "parameters: {lr: 1}\ngrid_search: {data.size: [1]}",
            "Train.data holds no config: give it one first",
        ),
        (
            HEAD + "parameters: {lr: 1}\ngrid_search: {x.y: [1]}",
            "grid_search.x.y: Train has no parameter 'x'",
        ),
        (HEAD + "parameters: {lr: 1, <<: {epochs: 2}}", "Train has no parameter '<<'"),
    ],
)
def test_an_error_names_file_and_key(write: Write, text: str, message: str) -> None:
    with pytest.raises(ExperimentFileError) as caught:
        tasks(write(text))
    assert message in str(caught.value)


def test_small_files_that_stand_for_much_are_refused(write: Write) -> None:
    laughs = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 40))
    for text in (
        laughs,
        "a: &a [*a]",
        "a: " + "[" * 20_000,
        "a: " + "[" * 200 + "]" * 200,
        "a: " + "9" * 10_000,
        "m0: &m0 {a: 1}\n"
        + "".join(f"m{i}: &m{i} {{!!merge <<: [*m{i - 1}, *m{i - 1}]}}\n" for i in range(1, 40)),
    ):
        with pytest.raises(ExperimentFileError):
            read_experiment(write(text))
    file = write(HEAD + "grid_search:\n" + "".join(f"  p{i}: {list(range(100))}\n" for i in range(4)))
    with pytest.raises(ExperimentFileError, match="stands for 100000000 tasks"):
        tasks(file)


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(ExperimentFileError, match="cannot be read: No such file"):
        read_experiment(tmp_path / "gone.yaml")
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(ExperimentFileError, match="not UTF-8"):
        read_experiment(tmp_path / "x.yaml")


def test_code_runs_before_the_imports(write: Write, tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text(
        "import sys, types; sys.modules['train_made_up'] = types.ModuleType('train_made_up')"
    )
    file = write(
        "imports: [train_made_up, MODULE]\npre_experiment: setup.py\ntask: MODULE.Train\nparameters: {lr: 1}"
    )
    assert len(tasks(file)) == 1


def test_an_error_inside_a_module_is_not_hidden(write: Write, tmp_path: Path) -> None:
    (tmp_path / "train_broken.py").write_text("import not_installed_at_all")
    with pytest.raises(ModuleNotFoundError, match="not_installed_at_all"):
        tasks(write("task: train_broken.Train"))


def test_a_file_hidden_by_a_module_of_the_same_name_is_refused(write: Write, tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("")
    with pytest.raises(ExperimentFileError, match="is hidden by"):
        tasks(write("imports: [json.py]\ntask: json.Train"))


@given(st.text(alphabet="ab: -[]{}&*!<>|'\"#%@,\n0.e~", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    content: dict[str, Any] = {}
    try:
        _override(Path("x.yaml"), content, {}, f"a={text}")
    except ExperimentFileError:
        return
    assert list(content["parameters"]) == ["a"]


def test_a_place_is_known_for_keys_below(write: Write) -> None:
    experiment: ExperimentFile = read_experiment(write(SWEEP))
    assert experiment.where("parameters.data.other").endswith("sweep.yaml:3: parameters.data.other")
