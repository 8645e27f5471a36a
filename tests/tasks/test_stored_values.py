"""Owns the comparison of a task with the values that its job was run with, where a default has changed."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from tenuto import Config, Meta, Param, Task, deprecate, field, identity, setmeta
from tenuto.tasks.serialization import document
from tenuto.tasks.stored_values import compared, defaults_digest, have_same_values


class Net(Config):
    k: Param[int] = 1
    data: Meta[str] = "here"


class Deep(Net):
    pass


class Wide(Net):
    pass


class Pair(Config):
    first: Param[Net]
    second: Meta[str]


@deprecate
class Broad(Wide):
    pass


class Colour(Enum):
    RED = 1
    BLUE = 2


def task_of(annotation: Any, default: Any, parameter: Any = Param) -> Any:
    """A task class as it is at one time; all of them share an identity."""
    space = {"__annotations__": {"it": parameter[annotation]}, "it": field(default_factory=lambda: default)}
    space["it"] = field(default_factory=lambda: default, ignore_default=True)
    return type("Fit", (Task,), {"__xpmid__": "tests.fit", "__module__": __name__, **space})


CHANGES: dict[str, tuple[Any, Any, Any, str]] = {
    "another class": (Net, Deep.C(), Wide.C(), "it was Deep.C(k=1) and is Wide.C(k=1) now"),
    "a config for none": (Net | None, None, Net.C(), "it was None and is Net.C(k=1) now"),
    "none for a config": (Net | None, Net.C(), None, "it was Net.C(k=1) and is None now"),
    "one more": (
        list[Net],
        [Net.C()],
        [Net.C(), Net.C()],
        "it was [Net.C(k=1)] and is [Net.C(k=1), Net.C(k=1)] now",
    ),
    "one less": (list[Net], [Net.C(), Net.C()], [], "it was [Net.C(k=1), Net.C(k=1)] and is [] now"),
    "another key": (
        dict[str, Net],
        {"a": Net.C()},
        {"b": Net.C()},
        "it was {'a': Net.C(k=1)} and is {'b': Net.C(k=1)} now",
    ),
    "below a number": (dict[int, Net], {1: Net.C()}, {1: Net.C(k=4)}, "it['1'].k was 1 and is 4 now"),
    "a value beside": (
        tuple[int, Net],
        (1, Net.C()),
        (2, Net.C()),
        "it was (1, Net.C(k=1)) and is (2, Net.C(k=1)) now",
    ),
    "in a tuple": (
        tuple[int, Net],
        (1, Deep.C()),
        (1, Wide.C()),
        "it[1] was Deep.C(k=1) and is Wide.C(k=1) now",
    ),
    "in a set": (set[Net], {Net.C(), Net.C(k=7)}, {Net.C(k=3), Net.C(k=7)}, "it[0].k was 1 and is 3 now"),
    "a value for a config": (Net | int, Net.C(), 3, "it was Net.C(k=1) and is 3 now"),
    "a member": (Colour, Colour.RED, Colour.BLUE, "it was Colour.RED and is Colour.BLUE now"),
    "a plain list": (list[int], [1], [1, 2], "it was [1] and is [1, 2] now"),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_default_of_another_shape_is_another_value(kind: str) -> None:
    annotation, before, after, told = CHANGES[kind]
    then, now = task_of(annotation, before).C(), task_of(annotation, after).C()
    assert identity(then) == identity(now)
    assert defaults_digest(then) != defaults_digest(now)
    assert [str(one) for one in compared(now, document(then), {}).changed] == [told]
    assert [str(one) for one in compared(then, document(then), {}).changed] == []
    assert not have_same_values(document(now), document(then))
    assert have_same_values(document(now), document(now))


VALUES: dict[str, tuple[Any, Any, Any]] = {
    "no number": (float, float("nan"), 0.5),
    "without end": (float, 0.5, float("-inf")),
    "a large number": (int, 1 << 80, 2),
    "sets": (set[int], {1}, set()),
    "tuples": (tuple[int, ...], (1,), ()),
    "a dict of numbers": (dict[int, str], {1: "a"}, {2: "b"}),
    "a path": (Path, Path("a"), Path("b")),
    "half a character": (str, "\ud800", "`"),
    "an inner value": (Net, Net.C(k=8), Net.C(k=9)),
    "values of a list": (list[Net], [Net.C(k=8)], [Net.C(k=8), Net.C(k=9)]),
    "a config at last": (Net | None, None, Deep.C(k=3)),
    **{kind: change[:3] for kind, change in CHANGES.items() if kind not in ("one more", "one less")},
}


@pytest.mark.parametrize("kind", VALUES)
def test_a_remedy_is_python_that_keeps_the_old_results(kind: str) -> None:
    annotation, before, after = VALUES[kind]
    then, now = task_of(annotation, before).C(), task_of(annotation, after).C()
    (changed, *_) = compared(now, document(then), {}).changed
    line = changed.remedy().partition("... = ")[2].rstrip("`")
    space = {
        "__annotations__": {"it": Param[annotation]},
        "it": eval(line, globals()),
        "__xpmid__": "tests.fit",
    }
    mended: Any = type("Fit", (Task,), {**space, "__module__": __name__})
    assert have_same_values(document(mended.C()), document(now))
    assert identity(mended.C()) != identity(then)
    assert identity(mended.C(it=before)) == identity(then)


def test_a_deprecated_class_of_unknown_types_is_in_no_tasks_way(monkeypatch: pytest.MonkeyPatch) -> None:
    unread: Any = type(
        "Unread", (Wide,), {"__annotations__": {"x": "Param[Missing]"}, "__module__": __name__}
    )
    monkeypatch.setattr("tenuto.tasks.schema.deprecated", [unread])
    then, now = task_of(Net, Deep.C()).C(), task_of(Net, Wide.C()).C()
    assert [one.path for one in compared(now, document(then), {}).changed] == ["it"]


def inner_of(default: int) -> type[Config]:
    """A class of parameters as it is at one time."""
    space = {"__annotations__": {"k": Param[int], "data": Meta[str]}, "k": default, "data": "here"}
    return type("Inner", (Config,), {"__xpmid__": "tests.inner", "__module__": __name__, **space})


def test_what_lies_in_a_meta_does_not_count_and_is_renewed() -> None:
    before, after = inner_of(1), inner_of(2)
    for parameter, mark in ((Meta, lambda one: one), (Param, lambda one: setmeta(one, True))):
        then = task_of(Config | None, None, parameter).C(it=mark(before.C()))
        now = task_of(Config | None, None, parameter).C(it=mark(after.C(data="there")))
        assert identity(then) == identity(now)
        found = compared(now, document(then), {})
        assert found.changed == ()
        assert found.renewed == {"0": {"values": {"k": 2, "data": "there"}}}
    counted = task_of(Config | None, None, Meta)
    then, now = (counted.C(it=setmeta(cls.C(), False)) for cls in (before, after))
    assert [str(one) for one in compared(now, document(then), {}).changed] == ["it.k was 1 and is 2 now"]


def test_a_default_whose_class_was_renamed_is_the_same() -> None:
    then, now = task_of(Net, Broad.C()).C(), task_of(Net, Wide.C()).C()
    assert defaults_digest(then) != defaults_digest(now)
    for one, other in ((then, now), (now, then)):
        assert compared(one, document(other), {}).changed == ()
        assert have_same_values(document(one), document(other))


def test_an_enum_whose_file_has_moved_is_the_same() -> None:
    task = task_of(Colour, Colour.RED).C()
    stored = document(task)
    stored["objects"][0]["values"]["it"]["$enum"][2] = "/elsewhere/colours.py"
    assert compared(task, stored, {}).changed == ()


def test_what_follows_a_config_is_looked_at_too() -> None:
    def at(word: str) -> Any:
        return Pair.C(first=Net.C(data=word), second=word)

    assert compared(at("new"), document(at("old")), {}).renewed == {
        "0": {"values": {"data": "new"}},
        "1": {"values": {"second": "new"}},
    }
