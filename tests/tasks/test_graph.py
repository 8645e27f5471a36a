"""Configs connected by the thousand: no recursion, no quadratic cost, shared parts shared and hashed once."""

import hashlib
import sys
from pathlib import Path
from typing import Any

import pytest

from tenuto import (
    Config,
    Meta,
    Param,
    PathGenerator,
    Task,
    copyconfig,
    explain,
    field,
    former_identity,
    from_state_dict,
    identity,
    state_dict,
)
from tenuto.tasks.graph import folders, postorder
from tenuto.tasks.identity import digest
from tenuto.tasks.serialization import dumps, job_document

DEPTH = 10_000


class Link(Config):
    number: Param[int]
    inner: Param["Link | None"] = None


class Step(Task):
    number: Param[int]
    before: Param["Step | None"] = None
    made: Meta[Path] = field(default_factory=PathGenerator("result"))


class Data(Config):
    name: Param[str]


class Two(Config):
    left: Param[Any]
    right: Param[Any]


class Reader(Config):
    data: Param[Data]


class Train(Task):
    data: Param[Data]
    reader: Param[Reader | None] = None
    lr: Param[float] = 0.1


def chain(depth: int = DEPTH, last: int = 0) -> Link:
    config = Link.C(number=last)
    for number in range(1, depth):
        config = Link.C(number=number, inner=config)
    return config


def innermost(config: Any) -> Any:
    while config.inner is not None:
        config = config.inner
    return config


class CountingHashes:
    """SHA-256, with a counter of what was hashed."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def sha256(self, data: bytes) -> Any:
        self.sizes.append(len(data))
        return hashlib.sha256(data)


@pytest.fixture
def hashes(monkeypatch: pytest.MonkeyPatch) -> CountingHashes:
    counting = CountingHashes()
    monkeypatch.setattr(sys.modules[digest.__module__], "sha256", counting.sha256)
    return counting


# -- depth -------------------------------------------------------------------------------------------


def test_the_depth_is_beyond_the_recursion_limit() -> None:
    assert sys.getrecursionlimit() < DEPTH


def test_a_deep_config_has_an_identity() -> None:
    assert identity(chain()) == identity(chain()) != identity(chain(last=1))


def test_a_deep_config_can_be_sealed_and_copied() -> None:
    config = chain().seal()
    copied = config.copy()
    copied.number = -1
    assert identity(copied) != identity(config)
    assert innermost(config)._state.sealed


def test_a_deep_config_has_the_tags_of_its_depths() -> None:
    config = chain()
    innermost(config).tag("deep", 1)
    assert config.tags() == {"deep": 1}
    assert config.seal().tags() == {"deep": 1}


@pytest.mark.slow
def test_a_deep_config_comes_to_life() -> None:
    live = chain().instance()
    assert innermost(live).number == 0
    assert live.number == DEPTH - 1


@pytest.mark.slow
def test_a_difference_in_the_depths_is_explained() -> None:
    (reason,) = explain(chain(), chain(last=1)).differences
    assert reason.path == ".".join(["inner"] * (DEPTH - 1) + ["number"])
    assert (reason.first, reason.second) == ("0 (int)", "1 (int)")


@pytest.mark.slow
def test_a_deep_config_is_stored_and_read() -> None:
    config = chain()
    assert identity(from_state_dict(state_dict(config))) == identity(config)


def test_a_deep_config_is_shown_and_forgotten() -> None:
    config = chain()
    assert repr(config) == f"Link.C(number={DEPTH - 1}, inner=Link.C(…))"
    assert former_identity(config) is None
    del config  # a recursive destructor would end the interpreter


# -- a chain of tasks --------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_chain_of_tasks_costs_each_task_the_same(experiment: Any, hashes: CountingHashes) -> None:
    task: Any = None
    sizes = []
    hashed = []
    for number in range(DEPTH):
        task = Step.C(number=10_000 + number, before=task).submit()
        before = len(hashes.sizes)
        identity(task)
        hashed.append(len(hashes.sizes) - before)
        if number in (10, DEPTH - 1):
            written = job_document(task, task.jobpath, experiment.root / "partials", [])
            sizes.append(len(dumps(written)))
    assert set(hashed) == {1}
    assert max(hashes.sizes) < 1000
    assert abs(sizes[1] - sizes[0]) < 50  # the numbers of the jobs have more digits
    assert task.made == experiment.root / "jobs" / str(DEPTH - 1) / "result"


def test_a_chain_of_tasks_keeps_little_for_each_task(experiment: Any) -> None:
    task: Any = None
    for number in range(200):
        task = Step.C(number=number, before=task).submit()
        assert len(task._state.upstream) == min(number, 1)
        assert len(list(folders(task))) == 1


def test_a_chain_of_tasks_is_walked_only_to_the_last_job(experiment: Any) -> None:
    task: Any = None
    for number in range(100):
        task = Step.C(number=number, before=task)
        fresh = list(postorder(task, lambda node: node._state.sealed))
        assert fresh == [task]
        task.submit()


# -- sharing -----------------------------------------------------------------------------------------


def test_shared_parts_are_hashed_once(hashes: CountingHashes) -> None:
    data = Data.C(name="mnist")
    reader = Reader.C(data=data)
    for number in range(100):
        identity(Train.C(data=data, reader=reader, lr=number))
    assert len(hashes.sizes) == 102


def test_a_diamond_of_diamonds_is_not_exponential(hashes: CountingHashes) -> None:
    config: Any = Data.C(name="d")
    for _ in range(200):
        config = Two.C(left=config, right=config)
    identity(config)
    assert len(hashes.sizes) == 201
    config.seal()
    config.instance()
    assert len(state_dict(config)["objects"]) == 201


def test_shared_configs_are_one_live_object() -> None:
    data = Data.C(name="d")
    live = Train.C(data=data, reader=Reader.C(data=data)).instance()
    assert live.data is live.reader.data
    apart = Train.C(data=Data.C(name="d"), reader=Reader.C(data=Data.C(name="d"))).instance()
    assert apart.data is not apart.reader.data


def test_configs_shared_between_the_items_of_a_value_are_one_live_object() -> None:
    data = Data.C(name="d")
    one, other, same = from_state_dict(
        state_dict([Reader.C(data=data), Train.C(data=data), data]), as_instance=True
    )
    assert one.data is other.data is same


def test_post_init_runs_once_for_each_object_children_first() -> None:
    order: list[str] = []

    class Part(Config):
        name: Param[str]

        def __post_init__(self) -> None:
            order.append(self.name)

    class Whole(Part):
        parts: Param[list[Part]]
        first: Param[Part | None] = None

        def __post_init__(self) -> None:
            assert all(part.name in order for part in self.parts)
            super().__post_init__()

    a, b = Part.C(name="a"), Part.C(name="b")
    Whole.C(name="whole", parts=[a, b, a], first=b).instance()
    assert sorted(order[:2]) == ["a", "b"]
    assert order[2:] == ["whole"]


def test_a_live_object_is_new_each_time() -> None:
    config = Data.C(name="d")
    assert config.instance() is not config.instance()
    assert not hasattr(config.instance(), "_state")


# -- digests stay right ------------------------------------------------------------------------------


def outer(name: str) -> Train:
    return Train.C(data=Data.C(name=name), reader=Reader.C(data=Data.C(name="r")))


@pytest.mark.parametrize("is_sealed_after", [False, True])
def test_a_change_below_changes_a_known_identity(is_sealed_after: bool) -> None:
    config = outer("a")
    assert identity(config) == identity(outer("a"))
    config.data.name = "b"
    if is_sealed_after:
        config.seal()
    assert identity(config) == identity(outer("b"))


def test_a_change_two_levels_below_changes_a_known_identity() -> None:
    config = outer("a")
    identity(config)
    config.reader.data.name = "changed"
    changed = identity(config)
    config.reader.data.name = "r"
    assert changed != identity(config) == identity(outer("a"))


def test_a_change_of_one_user_of_a_shared_part_leaves_the_others_right() -> None:
    data = Data.C(name="a")
    one, other = Train.C(data=data), Train.C(data=data)
    identity(one)
    identity(other)
    data.name = "b"
    assert identity(one) == identity(other) == identity(Train.C(data=Data.C(name="b")))
    one.lr = 0.5
    assert identity(one) != identity(other)


def test_a_part_swapped_after_hashing_counts() -> None:
    config = outer("a")
    identity(config)
    config.data = Data.C(name="b")
    assert identity(config) == identity(outer("b"))


def test_hashing_sealed_configs_again_costs_nothing(hashes: CountingHashes) -> None:
    configs = [outer(str(number)).seal() for number in range(10)]
    for config in configs:
        identity(config)
    first = len(hashes.sizes)
    loose = outer("loose")
    identity(loose)
    loose.data.name = "changed"  # a new epoch
    for config in configs:
        identity(config)
    assert len(hashes.sizes) == first + 4  # those of `loose`


def test_a_changed_copy_of_a_sealed_config_is_hashed_anew() -> None:
    sealed = outer("a").seal()
    identity(sealed)
    assert identity(copyconfig(sealed, data=Data.C(name="b"))) == identity(outer("b"))


# -- folders -----------------------------------------------------------------------------------------


class Saved(Config):
    x: Param[int]
    path: Meta[Path] = field(default_factory=PathGenerator("file"))


class Saves(Task):
    own: Meta[Path] = field(default_factory=PathGenerator("own"))
    one: Param[Saved | None] = None
    many: Param[list[Saved]] = field(default_factory=list)
    many_1: Param[Saved | None] = None
    table: Param[dict[Any, Any]] = field(default_factory=dict)
    origin: Param[Saved | None] = None


def places(task: Saves) -> dict[int, str]:
    return {node.x: folder for node, folder in folders(task) if isinstance(node, Saved)}


def test_every_config_with_generated_paths_has_a_readable_folder() -> None:
    task = Saves.C(
        one=Saved.C(x=1),
        many=[Saved.C(x=2), Saved.C(x=3)],
        table={"key": [Saved.C(x=4)]},
        many_1=Saved.C(x=5),
    )
    assert places(task) == {
        1: "out/one",
        2: "out/many.0",
        3: "out/many.1",
        4: "out/table.key.0",
        5: "out/many_1",
    }


ODD_KEYS = [
    "a/b",
    "a_b",
    "a.b",
    "a",
    "A",
    "..",
    "",
    " ",
    "é",
    "x" * 500,
    1,
    "1",
    True,
    "True",
    None,
    (1, 2),
    1.5,
]


def test_two_configs_never_share_a_folder() -> None:
    table = {(type(key).__name__, key): Saved.C(x=number) for number, key in enumerate(ODD_KEYS)}
    plain = {key: Saved.C(x=100 + number) for number, key in enumerate(ODD_KEYS) if key is not True}
    task = Saves.C(table={**table, **plain}, origin=Saved.C(x=200))
    found = places(task)
    assert len(found) == len(table) + len(plain) + 1
    assert len(set(found.values())) == len(found)
    for folder in found.values():
        assert all(part not in ("", ".", "..") and len(part) < 200 for part in folder.split("/"))


def test_a_folder_does_not_depend_on_the_order_of_a_dict() -> None:
    def of(keys: list[str]) -> dict[int, str]:
        return places(Saves.C(table={key: Saved.C(x=len(key)) for key in keys}))

    assert of(["a/b", "a__b"]) == of(["a__b", "a/b"])
