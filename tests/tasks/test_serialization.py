"""Owns stored configs: what is written comes back exactly, and what Tenuto did not write is refused."""

from __future__ import annotations

import ast
import copy
import enum
import json
import math
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tenuto
from proof.descriptors import open_files
from tenuto import (
    Config,
    Constant,
    DataPath,
    LightweightTask,
    Meta,
    Param,
    PathGenerator,
    Task,
    TenutoError,
    cache,
    deprecate,
    deserialize,
    field,
    from_state_dict,
    from_task_dir,
    identity,
    load,
    param_group,
    partial,
    pathgenerator,
    save,
    serialize,
    setmeta,
    state_dict,
    stop_tags,
)
from tenuto.errors import ClassNotFound, MalformedFile, NewerFormat, SerializationError
from tenuto.tasks.ports import SubmitOptions, current_submitter
from tenuto.tasks.serialization import MAX_BYTES, PARAMS_FILE, dumps, job_document, loads
from tenuto.tasks.stored_configs import CONFIG_FILE, read_job

SOURCES = Path(tenuto.__file__).parent
BIG = 7**12_000  # more than 10,000 digits


class Colour(enum.Enum):
    RED = 1
    GREEN = 2


class Shade(enum.StrEnum):
    DARK = "dark"


class Level(enum.IntEnum):
    LOW = 1


class Leaf(Config):
    x: Param[int] = 1


class Anything(Config):
    value: Param[Any]


class Pair(Config):
    left: Param[Leaf]
    right: Param[Leaf]
    others: Param[list[Leaf]] = field(default_factory=list)


class Kept(Config):
    name: Param[str]
    kind: Constant[str] = "kept"
    note: Meta[str] = ""


class Stored(Config):
    path: DataPath
    more: DataPath[Path | None] = None


class Announce(LightweightTask):
    text: Param[str]

    def execute(self) -> None:
        HEARD.append(self.text)


HEARD: list[str] = []


class Learn(Task):
    leaf: Param[Leaf]
    lr: Param[float] = 0.1
    model: Meta[Path] = field(default_factory=PathGenerator("model.pt"))

    def execute(self) -> None: ...


class Continue(Task):
    before: Param[Task]
    step: Param[int] = 0

    def __post_init__(self) -> None:
        BUILT.append(self.step)
        self.label = f"step {self.step}"

    def execute(self) -> None: ...


BUILT: list[int] = []
SEEDS = param_group("seeds")


class Shared(Task):
    seed: Param[int] = field(groups=[SEEDS])
    size: Param[int] = 3
    family = partial(exclude_groups=[SEEDS])
    common: Meta[Path] = field(default_factory=PathGenerator("all.txt", partial=family))
    own: Annotated[Path, pathgenerator("sub/own.txt")]

    def execute(self) -> None: ...


class Caching(Config):
    x: Param[int]

    @cache("table")
    def table(self, path: Path) -> str:
        return str(path)


class Holder(Task):
    held: Param[Caching]
    leaf: Param[Leaf] = Leaf.C(x=5)

    def execute(self) -> None: ...


class Model(Config):
    task: Param[Learn]


class Outputs(Task[Leaf]):
    n: Param[int]

    def task_outputs(self, dep: Any) -> Leaf:
        return dep(Leaf.C(x=self.n))

    def execute(self) -> None: ...


class Newer(Config):
    amount: Param[int]


@deprecate(replace=True)
class Older(Config):
    number: Param[int]

    def __convert__(self) -> Newer:
        return Newer.C(amount=self.number)


# -- a workspace that runs nothing -----------------------------------------------------------------


@dataclass
class FakeJob:
    path: Path
    partials: Path
    stdout: Path = Path("out")
    stderr: Path = Path("err")

    def wait(self) -> None: ...

    def found_params(self) -> None: ...

    def watch_output(self, method: Any, callback: Any) -> None: ...

    def on_completed(self, callback: Any) -> None: ...


@dataclass
class FakeWorkspace:
    root: Path
    import_path: list[str] = dataclass_field(default_factory=list)

    def submit(self, task: Any, submission: SubmitOptions) -> FakeJob:
        job = FakeJob(
            self.root / "jobs" / type(task).__name__.lower() / identity(task), self.root / "partials"
        )
        job.path.mkdir(parents=True, exist_ok=True)
        written = job_document(task, job.path, job.partials, self.import_path)
        (job.path / PARAMS_FILE).write_bytes(dumps(written))
        return job


@contextmanager
def workspace(root: Path) -> Iterator[FakeWorkspace]:
    made = FakeWorkspace(root)
    token = current_submitter.set(made)
    try:
        yield made
    finally:
        current_submitter.reset(token)


def chain(length: int) -> Any:
    task: Any = Learn.C(leaf=Leaf.C(x=length)).submit()
    for step in range(length):
        task = Continue.C(before=task, step=step).submit()
    return task


# -- what comes back -------------------------------------------------------------------------------

any_text = st.text(st.characters(), max_size=8)  # lone surrogates included
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=2**62, max_value=2**70).map(lambda n: -n),
    st.sampled_from([2**63, 2**63 - 1, -(2**63)]),
    st.floats(),
    st.sampled_from([-0.0, math.inf, -math.inf, math.nan, 5e-324]),
    any_text,
    st.text("$ref", max_size=4),
    any_text.filter(lambda text: "\0" not in text).map(Path),
    st.sampled_from([*Colour, *Shade, *Level]),
)
keys = st.recursive(scalars, lambda inner: st.tuples(inner, inner), max_leaves=3)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.sets(keys, max_size=3),
        st.dictionaries(keys, inner, max_size=3),
        st.dictionaries(any_text, inner, max_size=3),
    ),
    max_leaves=12,
)


def exact(value: Any) -> Any:
    """A form that is equal only for values that are the same in every respect that one can see."""
    if isinstance(value, enum.Enum):
        return type(value), value.name
    if isinstance(value, float):
        return "float", "nan" if math.isnan(value) else value.hex()
    if isinstance(value, list | tuple):
        return "list" if isinstance(value, list) else "tuple", [exact(item) for item in value]
    if isinstance(value, set):
        return "set", sorted(map(repr, map(exact, value)))
    if isinstance(value, dict):
        return "dict", [(exact(key), exact(item)) for key, item in value.items()]
    if isinstance(value, int) and not isinstance(value, bool):
        return "int", hex(value)
    return type(value), value


def through_bytes(value: Any) -> Any:
    return from_state_dict(loads(dumps(state_dict(value)), "the test"))


@given(values)
def test_any_value_comes_back_exactly(value: Any) -> None:
    config = Anything.C(value=value)
    back = through_bytes(config)
    assert exact(back.value) == exact(config.value)
    assert identity(back) == identity(config)
    assert exact(through_bytes([value])) == exact([value])


@pytest.mark.parametrize(
    "value",
    [
        "\ud800\udc00",
        {"\ud800\udc00": 1, "$ref": 2},
        Path("/data/\udcff\udcfe"),
        {1: "int", "1": "str", (1, "a"): "tuple", None: "none", 2.5: "float", Colour.RED: "enum"},
        {"$dict": [["a", 1]]},
        {BIG: BIG},
        -0.0,
        {math.nan},
        [[[[]]], {}, (), set()],
    ],
    ids=["surrogates", "keys", "path", "any keys", "like ours", "long ints", "-0.0", "nan", "empty"],
)
def test_the_hard_values_come_back_exactly(value: Any, tmp_path: Path) -> None:
    save(value, tmp_path)
    assert exact(load(tmp_path)) == exact(value)


def test_shared_configs_stay_shared_and_equal_ones_stay_apart(tmp_path: Path) -> None:
    one, other = Leaf.C(x=3), Leaf.C(x=3)
    save({"pair": Pair.C(left=one, right=one, others=[other, one]), "too": one}, tmp_path)
    back = load(tmp_path)
    pair = back["pair"]
    assert pair.left is pair.right is pair.others[1] is back["too"]
    assert pair.others[0] is not pair.left


def test_a_config_nested_thousands_deep_comes_back() -> None:
    config: Any = Anything.C(value=0)
    for _ in range(5_000):
        config = Anything.C(value=[config])
    assert identity(through_bytes(config)) == identity(config)


def test_what_a_config_knows_besides_its_values_comes_back() -> None:
    inner = setmeta(Leaf.C(x=2), True).tag("inner", True)
    config = Anything.C(value=[inner, stop_tags(Leaf.C(x=9).tag("hidden", 1)), setmeta(Leaf.C(), False)])
    config.tag("nan", math.nan).tag("big", BIG).tag("none", None)
    back = through_bytes(config)
    assert identity(back) == identity(config)
    assert exact(back.tags()) == exact(config.tags())
    assert "hidden" not in back.tags()
    assert [item._state.is_meta for item in back.value] == [True, None, False]


def test_origin_and_init_tasks_come_back(tmp_path: Path) -> None:
    with workspace(tmp_path):
        output = Outputs.C(n=3).submit(init_tasks=[Announce.C(text="a"), Announce.C(text="b")])
    back = through_bytes(output)
    assert identity(back) == identity(output) != identity(Leaf.C(x=3))
    assert [task.text for task in back._state.origin._state.init_tasks] == ["a", "b"]


def test_a_constant_is_the_class_s_and_not_the_file_s() -> None:
    written = state_dict(Kept.C(name="n", note="hello"))
    assert written["objects"][0]["values"] == {"name": "n", "note": "hello"}
    assert from_state_dict(written).kind == "kept"


def test_an_unfinished_config_can_be_stored() -> None:
    back = through_bytes(Pair.C(left=Leaf.C()))
    with pytest.raises(AttributeError):
        back.right


def test_a_parameter_added_since_takes_its_default() -> None:
    written = state_dict(Learn.C(leaf=Leaf.C()))
    for written_object in written["objects"]:
        written_object["values"] = {k: v for k, v in written_object["values"].items() if k == "leaf"}
    back = from_state_dict(written)
    assert (back.lr, back.leaf.x) == (0.1, 1)


def test_a_config_of_a_class_that_was_deprecated_since_becomes_the_new_one() -> None:
    written = state_dict(Newer.C(amount=1))
    schema_id = written["objects"][0]["type"]
    written["objects"][0].update(
        type=schema_id.replace("Newer", "Older"),
        values={"number": 4},
    )
    written["objects"][0]["class"][1] = "Older"
    back = from_state_dict(written)
    assert isinstance(back, Newer)
    assert back.amount == 4


@pytest.mark.parametrize(
    "value", [Leaf.C().instance(), object(), b"bytes", [1j]], ids=["live", "o", "b", "c"]
)
def test_what_a_parameter_cannot_hold_is_not_stored(value: Any) -> None:
    with pytest.raises(TypeError, match=r"cannot be stored|live object"):
        state_dict(value)


def test_live_objects_from_a_state() -> None:
    one = Leaf.C(x=4)
    live = from_state_dict(state_dict([Pair.C(left=one, right=one)]), as_instance=True)[0]
    assert type(live) is Pair
    assert live.left is live.right
    live.left.x = 5  # a live object is open, and its containers are plain
    live.others.append(1)


# -- files -----------------------------------------------------------------------------------------


def test_serialize_gives_the_live_object_after_its_init_tasks(tmp_path: Path) -> None:
    HEARD.clear()
    serialize(Leaf.C(x=8), tmp_path, init_tasks=[Announce.C(text="one"), Announce.C(text="two")])
    assert HEARD == []
    live = deserialize(tmp_path)
    assert (type(live), live.x, HEARD) == (Leaf, 8, ["one", "two"])


@pytest.mark.parametrize(
    "value",
    [
        1,
        {"config": 1, "init_tasks": []},
        {"config": Leaf.C(), "init_tasks": [Leaf.C()]},
        {"config": Leaf.C()},
    ],
    ids=range(4),
)
def test_deserialize_refuses_what_serialize_did_not_write(tmp_path: Path, value: Any) -> None:
    save(value, tmp_path)
    with pytest.raises(MalformedFile, match=r"use load\(\)"):
        deserialize(tmp_path)


def test_data_files_and_directories_travel_with_a_saved_config(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("file")
    (tmp_path / "in" / "a.txt").chmod(0o755)
    (tmp_path / "in" / "folder" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "folder" / "deep" / "b.txt").write_text("folder")
    config = Stored.C(path=tmp_path / "in" / "a.txt", more=tmp_path / "in" / "folder")
    other = Stored.C(path=tmp_path / "in" / "a.txt")
    save([config, other], tmp_path / "out")
    (tmp_path / "out").rename(tmp_path / "moved")
    one, two = load(tmp_path / "moved")
    assert one.path.read_text() == two.path.read_text() == "file"
    assert one.path != two.path
    assert os.access(one.path, os.X_OK)
    assert (one.more / "deep" / "b.txt").read_text() == "folder"
    assert one.path.is_relative_to(tmp_path / "moved")
    assert identity(one) == identity(config)


def test_saved_configs_are_loaded_as_live_objects_when_asked(tmp_path: Path) -> None:
    leaf = Leaf.C(x=2)
    save([Pair.C(left=leaf, right=leaf)], tmp_path)
    (live,) = load(tmp_path, as_instance=True)
    assert type(live) is Pair
    assert live.left is live.right
    assert type(load(tmp_path)[0]) is type(Pair.C())


def test_a_loaded_config_can_be_saved_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("file")
    save(Stored.C(path=tmp_path / "a.txt"), tmp_path / "out")
    for _ in range(2):
        save(load(tmp_path / "out"), tmp_path / "out")
    assert load(tmp_path / "out").path.read_text() == "file"


def test_a_data_directory_without_a_name_is_copied_inside(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "in" / "here").mkdir(parents=True)
    (tmp_path / "in" / "a.txt").write_text("file")
    monkeypatch.chdir(tmp_path / "in" / "here")
    save(Stored.C(path=Path("..")), tmp_path / "out")
    assert (load(tmp_path / "out").path / "a.txt").read_text() == "file"


def test_a_missing_data_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SerializationError, match=r"nowhere\.txt"):
        save(Stored.C(path=tmp_path / "nowhere.txt"), tmp_path / "out")
    assert not (tmp_path / "out" / CONFIG_FILE).exists()


# -- jobs ------------------------------------------------------------------------------------------


def test_a_job_reads_its_own_task_and_nothing_upstream_before_it_is_used(tmp_path: Path) -> None:
    with workspace(tmp_path):
        task = chain(3)
    BUILT.clear()
    live, init_tasks = read_job(task.jobpath)
    assert (type(live), live.step, init_tasks) == (Continue, 2, [])
    assert BUILT == [2]
    before = live.before
    assert BUILT == [2]
    assert before.label == "step 1"
    assert BUILT == [2, 1]
    assert type(live.before.before.before) is Learn
    assert live.before.before.before.leaf.x == 3


def test_the_documents_of_a_chain_do_not_grow_along_it(tmp_path: Path) -> None:
    with workspace(tmp_path):
        sizes = [len((chain(n).jobpath / PARAMS_FILE).read_bytes()) for n in (2, 40)]
    assert sizes[1] - sizes[0] < 20


def test_init_tasks_of_a_job_come_with_it(tmp_path: Path) -> None:
    with workspace(tmp_path):
        task = Learn.C(leaf=Leaf.C()).submit(init_tasks=[Announce.C(text="first"), Announce.C(text="then")])
    _, init_tasks = read_job(task.jobpath)
    assert [init_task.text for init_task in init_tasks] == ["first", "then"]


def test_generated_and_partial_paths_lie_in_the_workspace_even_when_it_moved(tmp_path: Path) -> None:
    with workspace(tmp_path / "old"):
        one, two = Shared.C(seed=1).submit(), Shared.C(seed=2).submit()
        last = Continue.C(before=one).submit()
    assert one.own == one.jobpath / "sub" / "own.txt"
    assert one.common == two.common
    assert one.common.is_relative_to(tmp_path / "old" / "partials")

    (tmp_path / "old").rename(tmp_path / "new")
    for task in (one, two):
        moved = tmp_path / "new" / task.jobpath.relative_to(tmp_path / "old")
        live, _ = read_job(moved)
        assert live.own == moved / "sub" / "own.txt"
        assert live.common == tmp_path / "new" / one.common.relative_to(tmp_path / "old")
    moved = tmp_path / "new" / last.jobpath.relative_to(tmp_path / "old")
    assert read_job(moved)[0].before.seed == 1
    config = from_task_dir(moved)
    assert identity(config) == identity(last)
    assert config.before.own.is_relative_to(tmp_path / "new")


def test_a_cached_method_finds_its_identity_in_the_job(tmp_path: Path) -> None:
    held = Caching.C(x=1)
    with workspace(tmp_path):
        task = Holder.C(held=held).submit()
    live, _ = read_job(task.jobpath)
    assert live.held.__dict__["__tenuto_identity__"][1] == identity(held)
    assert live.leaf.x == 5


@pytest.mark.slow
def test_from_task_dir_gives_the_whole_chain_however_long(tmp_path: Path) -> None:
    with workspace(tmp_path):
        task = chain(1_500)
    back = from_task_dir(task.jobpath)
    assert identity(back) == identity(task)
    live = from_task_dir(task.jobpath, as_instance=True)
    assert live.before.before.label == "step 1497"


def test_from_task_dir_shares_what_two_ways_lead_to(tmp_path: Path) -> None:
    with workspace(tmp_path):
        root = Learn.C(leaf=Leaf.C()).submit()
        left, right = Continue.C(before=root, step=1).submit(), Continue.C(before=root, step=2).submit()
        top = Anything.C(value=[left, right, root])
        task = Holders.C(all=top).submit()
    back = from_task_dir(task.jobpath)
    assert back.all.value[0].before is back.all.value[1].before is back.all.value[2]
    assert identity(back) == identity(task)


class Holders(Task):
    all: Param[Anything]

    def execute(self) -> None: ...


def test_an_upstream_task_is_filled_once_whichever_thread_asks(tmp_path: Path) -> None:
    with workspace(tmp_path):
        task = chain(2)
    for _ in range(20):
        live, _ = read_job(task.jobpath)
        BUILT.clear()
        start = threading.Barrier(4)
        seen: list[Any] = []

        def ask(upstream: Any = live.before, start: Any = start, seen: list[Any] = seen) -> None:
            start.wait()
            seen.append(upstream.label)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == ["step 0"] * 4
        assert BUILT == [0]


def test_an_upstream_task_can_be_copied_and_sent_before_it_is_used(tmp_path: Path) -> None:
    with workspace(tmp_path):
        task = chain(2)
    live, _ = read_job(task.jobpath)
    assert pickle.loads(pickle.dumps(live)).before.label == "step 0"
    assert copy.copy(live.before).label == "step 0"


def test_an_upstream_task_whose_file_is_gone_says_so_each_time(tmp_path: Path) -> None:
    with workspace(tmp_path):
        task = chain(2)
    live, _ = read_job(task.jobpath)
    file = task.before.jobpath / PARAMS_FILE
    content = file.read_bytes()
    file.unlink()
    for _ in range(2):
        with pytest.raises(SerializationError, match=r"params\.json"):
            live.before.label
    file.write_bytes(content)
    assert live.before.label == "step 0"


def test_an_attribute_that_an_upstream_task_has_not_is_an_attribute_error(tmp_path: Path) -> None:
    with workspace(tmp_path):
        task = chain(2)
    live, _ = read_job(task.jobpath)
    assert not hasattr(live.before, "nothing")
    with pytest.raises(AttributeError, match="nothing"):
        live.before.nothing


def test_jobs_that_depend_on_each_other_are_refused(tmp_path: Path) -> None:
    with workspace(tmp_path):
        task = chain(1)
    file = task.jobpath / PARAMS_FILE
    written = json.loads(file.read_bytes())
    for entry in written["objects"]:
        if "upstream" in entry:
            entry["upstream"] = PARAMS_FILE
    file.write_bytes(dumps(written))
    with pytest.raises(MalformedFile, match="depends on itself"):
        from_task_dir(task.jobpath)


# -- what Tenuto did not write ---------------------------------------------------------------------


def test_only_results_and_checkpoints_that_ask_for_it_use_pickle_and_no_file_its_like() -> None:
    """A task asks for it by `__pickle_result__`, or by `self.checkpoint.save()`: a file of its own."""
    banned = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "_pickle"}
    found = []
    texts = {file: file.read_text("utf-8") for file in SOURCES.rglob("*.py")}
    for file, text in texts.items():
        for node in ast.walk(ast.parse(text)) if any(name in text for name in banned) else ():
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                names = [node.value]
            found += [(file.name, name) for name in names if name.partition(".")[0] in banned]
    assert set(found) == {("codecs.py", "pickle"), ("task.py", "pickle")}


def test_a_newer_format_is_refused_with_advice(tmp_path: Path) -> None:
    written = {**state_dict(Leaf.C()), "version": 2, "objects": "something new"}
    (tmp_path / CONFIG_FILE).write_text(json.dumps(written))
    with pytest.raises(NewerFormat, match=r"format 2; this Tenuto reads up to 1: upgrade"):
        load(tmp_path)


def leaf_document(**changes: Any) -> dict[str, Any]:
    written = state_dict(Anything.C(value=[1]))
    written["objects"][0].update(changes)
    return written


HERE = state_dict(Leaf.C())["objects"][0]["class"]
REF = {"$ref": 0}
HOSTILE_OBJECTS: dict[str, dict[str, Any]] = {
    "a class that is no Config": {"class": ["pathlib", "Path", ""]},
    "a function": {"class": ["os", "system", ""]},
    "a module": {"class": ["os", "path", ""]},
    "a class that is not there": {"class": [HERE[0], "Nothing", HERE[2]]},
    "an enum": {"class": [HERE[0], "Colour", HERE[2]]},
    "an attribute of a config class": {"class": [HERE[0], "Leaf.instance", HERE[2]]},
    "no class": {"class": None},
    "a class by number": {"class": [1, 2, 3]},
    "a class by one name": {"class": ["os.system"]},
    "a relative module": {"class": ["..os", "Path", ""]},
    "a module by path": {"class": ["../os", "Path", ""]},
    "an empty module": {"class": ["", "Path", ""]},
    "a NUL in the file": {"class": ["nowhere", "Path", "/tmp/a\0b.py"]},
    "a file name that is too long": {"class": ["nowhere", "Path", "/" + "a" * 5_000 + ".py"]},
    "a surrogate in the file": {"class": ["nowhere", "Path", "/tmp/\ud800.py"]},
    "a device as the file": {"class": ["nowhere", "Path", "/dev/zero"]},
    "another type id": {"type": "other.Leaf"},
    "a type id by number": {"type": 3},
    "values in a list": {"values": [1]},
    "an unknown parameter": {"values": {"nothing": 1}},
    "a forward reference": {"values": {"value": {"$ref": 1}}},
    "a reference to itself": {"values": {"value": REF}},
    "a negative reference": {"values": {"value": {"$ref": -1}}},
    "a reference by text": {"values": {"value": {"$ref": "0"}}},
    "a reference by truth": {"values": {"value": {"$ref": True}}},
    "a huge reference": {"values": {"value": {"$ref": 10**4000}}},
    "an unknown kind": {"values": {"value": {"$pickle": "x"}}},
    "two kinds": {"values": {"value": {"$int": "0x1", "$float": "nan"}}},
    "a kind and a plain key": {"values": {"value": {"$int": "0x1", "a": 1}}},
    "an int that is none": {"values": {"value": {"$int": "twelve"}}},
    "an int by number": {"values": {"value": {"$int": 12}}},
    "a float that is none": {"values": {"value": {"$float": "1e999"}}},
    "a float in a list": {"values": {"value": {"$float": [1]}}},
    "text that is no hex": {"values": {"value": {"$str": "xy"}}},
    "text that is no UTF-8": {"values": {"value": {"$str": "ff"}}},
    "a path by number": {"values": {"value": {"$path": 1}}},
    "a path with a NUL": {"values": {"value": {"$path": "a\0b"}}},
    "a tuple that is none": {"values": {"value": {"$tuple": {"a": 1}}}},
    "a set of lists": {"values": {"value": {"$set": [[1]]}}},
    "a dict with a list as key": {"values": {"value": {"$dict": [[[1], 2]]}}},
    "a dict of triples": {"values": {"value": {"$dict": [[1, 2, 3]]}}},
    "a dict that is none": {"values": {"value": {"$dict": "ab"}}},
    "an enum that is none": {"values": {"value": {"$enum": [HERE[0], "Leaf", HERE[2], "x"]}}},
    "an enum without the member": {"values": {"value": {"$enum": [HERE[0], "Colour", HERE[2], "PINK"]}}},
    "an enum by text": {"values": {"value": {"$enum": "Colour"}}},
    "values nested too deep": {"values": {"value": json.loads("[" * 300 + "]" * 300)}},
    "data in a list": {"data": []} | {"data": [1]},
    "data that is no parameter": {"data": {"nothing": "x"}},
    "data by number": {"data": {"value": 1}},
    "data outside": {"data": {"value": "../../etc/passwd"}},
    "data at a place of its own": {"data": {"value": "/etc/passwd"}},
    "data with a NUL": {"data": {"value": "a\0b"}},
    "generated by number": {"generated": {"value": 1}},
    "tags in a list": {"tags": [1]},
    "a tag that is a list": {"tags": {"a": [1]}},
    "an origin by text": {"origin": "0"},
    "an origin that is itself": {"origin": 0},
    "init tasks by number": {"init_tasks": 0},
    "init tasks that are none": {"init_tasks": [None]},
    "an init task that is itself": {"init_tasks": [0]},
    "an upstream task": {"upstream": "../x/params.json"},
    "an upstream by number": {"upstream": 3},
}


@pytest.mark.parametrize("changes", HOSTILE_OBJECTS.values(), ids=HOSTILE_OBJECTS)
@pytest.mark.parametrize("read", [load, deserialize, from_task_dir, read_job], ids=lambda read: read.__name__)
def test_a_hostile_object_is_refused(changes: dict[str, Any], read: Any, tmp_path: Path) -> None:
    content = json.dumps(leaf_document(**changes))
    for name in (CONFIG_FILE, PARAMS_FILE):
        (tmp_path / name).write_text(content)
    if read is read_job:  # it does not check what a stored value means for its parameter
        assert isinstance(refusal(read, tmp_path), OURS)
    else:
        with pytest.raises(TenutoError):
            read(tmp_path)


OURS = (TenutoError, type(None))


def refusal(read: Callable[[Any], object], given: Any) -> Exception | None:
    """The error of a reader, if it does not give a value."""
    try:
        read(given)
    except Exception as error:  # noqa: BLE001  the test says which are allowed
        return error
    return None


GOOD = dumps(state_dict(Leaf.C()))
HOSTILE_CONTENT: dict[str, bytes] = {
    "nothing": b"",
    "binary": b"\x80\x04\x95\xff\x00",
    "not UTF-8": b'"\xff"',
    "a list": b"[]",
    "a number": b"1",
    "null": b"null",
    "an open end": GOOD[:-3],
    "more after the end": GOOD + b"{}",
    "deep lists": b"[" * 100_000,
    "deep dicts": b'{"a":' * 100_000,
    "deep inside": GOOD.replace(b'"x": 1', b'"x": ' + b"[" * 50_000 + b"]" * 50_000),
    "a NaN": GOOD.replace(b'"x": 1', b'"x": NaN'),
    "an infinity": GOOD.replace(b'"x": 1', b'"x": -Infinity'),
    "a float too large": GOOD.replace(b'"x": 1', b'"x": 1e999'),
    "an int too long": GOOD.replace(b'"x": 1', b'"x": ' + b"9" * 100_000),
    "a key twice": GOOD.replace(b'"x": 1', b'"x": 1, "x": 2'),
    "another format": GOOD.replace(b"tenuto-config", b"tenuto-other"),
    "version 0": GOOD.replace(b'"version": 1', b'"version": 0'),
    "version true": GOOD.replace(b'"version": 1', b'"version": true'),
    "version 1.0": GOOD.replace(b'"version": 1', b'"version": 1.0'),
    "version by text": GOOD.replace(b'"version": 1', b'"version": "1"'),
    "objects in a dict": b'{"format": "tenuto-config", "version": 1, "objects": {}, "value": 1}',
    "objects that are numbers": b'{"format": "tenuto-config", "version": 1, "objects": [1], "value": 1}',
    "no value": b'{"format": "tenuto-config", "version": 1, "objects": []}',
    "a value that is not there": b'{"format":"tenuto-config","version":1,"objects":[],"value":{"$ref":0}}',
}


@pytest.mark.parametrize("content", HOSTILE_CONTENT.values(), ids=HOSTILE_CONTENT)
@pytest.mark.parametrize("read", [load, deserialize, from_task_dir, read_job], ids=lambda read: read.__name__)
def test_hostile_content_is_refused(content: bytes, read: Any, tmp_path: Path) -> None:
    assert content != GOOD
    for name in (CONFIG_FILE, PARAMS_FILE):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(TenutoError) as caught:
        read(tmp_path)
    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize("read", [load, from_task_dir, read_job], ids=lambda read: read.__name__)
@pytest.mark.parametrize("kind", ["fifo", "directory", "nothing", "device", "huge", "broken link", "loop"])
def test_a_path_that_is_no_file_is_refused_without_waiting(kind: str, read: Any, tmp_path: Path) -> None:
    for name in (CONFIG_FILE, PARAMS_FILE):
        place = tmp_path / name
        if kind == "fifo":
            os.mkfifo(place)
        elif kind == "directory":
            place.mkdir()
        elif kind == "device":
            place.symlink_to("/dev/zero")
        elif kind == "huge":
            with place.open("wb") as stream:
                stream.truncate(MAX_BYTES + 1)
        elif kind == "broken link":
            place.symlink_to("nowhere")
        elif kind == "loop":
            place.symlink_to(name)
    with pytest.raises(SerializationError, match=r"\.json"):
        read(tmp_path)
    assert not open_files(str(tmp_path))


def test_a_directory_whose_name_cannot_be_is_refused() -> None:
    for name in ("a\0b", "\ud800", "a" * 10_000):
        with pytest.raises(SerializationError):
            load(name)


@pytest.mark.parametrize("here", [True, False])
def test_a_data_path_that_leaves_its_directory_is_refused(
    here: bool, tmp_path: Path, monkeypatch: Any
) -> None:
    (tmp_path / "a.txt").write_text("file")
    save(Stored.C(path=tmp_path / "a.txt"), tmp_path / "out")
    file = tmp_path / "out" / CONFIG_FILE
    for place in ("../a.txt", "data/../../a.txt", "/etc/passwd", "../out2/x"):
        written = json.loads(file.read_bytes())
        written["objects"][0]["data"]["path"] = place
        file.write_bytes(dumps(written))
        monkeypatch.chdir(tmp_path / "out")
        with pytest.raises(MalformedFile, match="outside"):
            load("." if here else tmp_path / "out")


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the import path, whose modules leave a file when they run."""
    folder = tmp_path / "path"
    body = "import pathlib\npathlib.Path(__file__).with_name('ran').touch()\n"
    (folder / "trap_package").mkdir(parents=True)
    (folder / "trap_package" / "__init__.py").write_text(body.replace("__file__)", "__file__).parent"))
    (folder / "trap_package" / "inner.py").write_text("x = 1\n")
    (folder / "trap_module.py").write_text(body + "class Bare:\n    pass\nTrap = 1\n# class Trap(Config)\n")
    (folder / "trap_lazy.py").write_text("def __getattr__(name):\n    import trap_module\n    return int\n")
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name in [name for name in sys.modules if name.startswith("trap_")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    "location",
    [
        ["trap_module", "Trap", ""],
        ["trap_module", "Bare", ""],
        ["trap_module", "Other", "trap_module.py"],
        ["trap_package", "Trap", ""],
        ["trap_package.inner", "Trap", ""],
        ["trap_lazy", "Trap", ""],
        ["elsewhere", "Trap", "{}/trap_module.py"],
        ["elsewhere", "Trap", "{}/../path/trap_module.py"],
    ],
    ids=lambda location: ".".join(location[:2]),
)
@pytest.mark.parametrize("as_enum", [False, True])
def test_a_module_that_declares_no_such_class_does_not_run(
    location: list[str], as_enum: bool, trap: Path, tmp_path: Path
) -> None:
    location = [part.format(trap) for part in location]
    if as_enum:
        written = leaf_document(values={"value": {"$enum": [*location, "RED"]}})
    else:
        written = leaf_document(**{"class": location})
    with pytest.raises(TenutoError):
        from_state_dict(written)
    assert not (trap / "ran").exists()
    assert not any(name.startswith("trap_") for name in sys.modules)


def test_a_loaded_module_imports_nothing_on_demand_for_a_stored_name(trap: Path) -> None:
    __import__("trap_lazy")
    with pytest.raises(ClassNotFound):
        from_state_dict(leaf_document(**{"class": ["trap_lazy", "Trap", ""]}))
    assert not (trap / "ran").exists()


def test_a_module_that_cannot_be_imported_is_an_error_of_ours(trap: Path) -> None:
    (trap / "trap_broken.py").write_text("class Trap(object): pass\nraise SystemError('no')\n")
    with pytest.raises(ClassNotFound, match=r"cannot be imported \(SystemError: no\)"):
        from_state_dict(leaf_document(**{"class": ["trap_broken", "Trap", ""]}))
    assert "trap_broken" not in sys.modules


def test_a_stored_class_is_imported_when_its_module_declares_it(trap: Path) -> None:
    (trap / "trap_good.py").write_text(
        "import tenuto\nclass Good(tenuto.Config):\n"
        "    x: tenuto.Param[int]\n    class Inner(tenuto.Config): ...\n"
    )
    for name, stored in {"Good": {"x": 3}, "Good.Inner": {}}.items():
        sys.modules.pop("trap_good", None)
        written = leaf_document(values=stored, **{"class": ["trap_good", name, ""]})
        del written["objects"][0]["type"]
        assert type(from_state_dict(written)).__qualname__ == name


# Random damage: whatever it is, the answer is a value or an error of ours.

json_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-3, 3),
        st.floats(),
        st.text(max_size=3),
        st.sampled_from(["tenuto", "os", "Config", "Leaf", *HERE]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from(
                "$int $float $str $path $enum $tuple $set $dict $ref $x a objects value values class type "
                "data generated tags meta origin init_tasks upstream identity stops_tags version".split()
            ),
            inner,
            max_size=3,
        ),
        st.fixed_dictionaries({"class": st.just(HERE), "values": st.dictionaries(st.just("x"), inner)}),
    ),
    max_leaves=15,
)


@given(json_values)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_any_json_as_a_value_or_object_gives_a_value_or_an_error_of_ours(data: Any) -> None:
    for written in (
        data,
        leaf_document(values={"value": data}),
        leaf_document(**(data if isinstance(data, dict) else {"values": data})),
        {"format": "tenuto-config", "version": 1, "objects": [data, data], "value": data},
        {"format": "tenuto-config", "version": 1, "objects": data, "value": REF},
    ):
        assert isinstance(refusal(from_state_dict, written), OURS)


BASE = dumps(state_dict([Pair.C(left=Leaf.C(x=2**70).tag("a", 1), right=Leaf.C()), {1: (2.5, {3})}]))


@given(st.lists(st.tuples(st.integers(0, len(BASE) - 1), st.binary(max_size=3)), max_size=4), st.data())
def test_any_damage_to_a_file_gives_a_value_or_an_error_of_ours(
    damage: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    content = bytearray(BASE)
    for place, replacement in damage:
        content[place : place + data.draw(st.integers(0, 3))] = replacement
    found = refusal(lambda text: from_state_dict(loads(text, "the test")), bytes(content))
    assert isinstance(found, OURS)


@given(json_values)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_any_job_document_gives_a_task_or_an_error_of_ours(tmp_path: Path, data: Any) -> None:
    for written in (
        leaf_document(values={"value": data}),
        leaf_document(**(data if isinstance(data, dict) else {"init_tasks": data})),
        {"format": "tenuto-config", "version": 1, "objects": [leaf_document()["objects"][0]], "value": data},
    ):
        (tmp_path / PARAMS_FILE).write_text(json.dumps(written))
        for read in (read_job, from_task_dir):
            assert isinstance(refusal(read, tmp_path), OURS)
