"""Why two identities differ, in words that name the place."""

from pathlib import Path
from typing import Any

import pytest

from tenuto import Config, Constant, Meta, Param, Task, explain, identity, setmeta
from tenuto.tasks.explain import MAX_DIFFERENCES


class Leaf(Config):
    x: Param[int] = 0
    note: Meta[str] = ""


class Other(Config):
    x: Param[int] = 0


class Node(Task):
    value: Param[Any] = None
    leaf: Param[Leaf | None] = None
    place: Param[Path | None] = None
    hidden: Meta[Leaf | None] = None


def told(first: Any, second: Any) -> list[tuple[str, str, str]]:
    explanation = explain(first, second)
    assert explanation.same == (identity(first) == identity(second))
    return [tuple(reason) for reason in explanation.differences]


def of(value: Any) -> Node:
    return Node.C(value=value)


@pytest.mark.parametrize(
    ("first", "second", "path", "words"),
    [
        (1, 2, "value", ("1 (int)", "2 (int)")),
        (1, True, "value", ("1 (int)", "True (bool)")),
        (1, "1", "value", ("1 (int)", "'1' (str)")),
        (None, 0, "value", ("None", "0 (int)")),
        ([1, 2], [1, 3], "value[1]", ("2 (int)", "3 (int)")),
        ([1, 2], (1, 2), "value", ("[1, 2] (list)", "(1, 2) (tuple)")),
        ([1], [1, 2], "value", ("[1] (list)", "[1, 2] (list)")),
        ({"a": [1]}, {"a": [2]}, "value['a'][0]", ("1 (int)", "2 (int)")),
        ({"a": 1}, {"b": 1}, "value", ("{'a': 1} (dict)", "{'b': 1} (dict)")),
        ({1: "x"}, {True: "x"}, "value", ("{1: 'x'} (dict)", "{True: 'x'} (dict)")),
        ({1}, {2}, "value", ("{1} (set)", "{2} (set)")),
        (Leaf.C(x=1), Leaf.C(x=2), "value.x", ("1 (int)", "2 (int)")),
        ([Leaf.C(x=1)], [Leaf.C(x=2)], "value[0].x", ("1 (int)", "2 (int)")),
        (Leaf.C(), None, "value", (f"a {__name__}.Leaf", "None")),
        (Leaf.C(), Other.C(), "value", (f"it is a {__name__}.Leaf", f"it is a {__name__}.Other")),
    ],
)
def test_a_difference_is_told_with_its_place(first: Any, second: Any, path: str, words: Any) -> None:
    assert told(of(first), of(second)) == [(path, *words)]


def test_equal_configs_are_said_to_be_the_same() -> None:
    assert str(explain(of([1]), of([1]))) == "same identity"
    assert explain(Node.C(hidden=Leaf.C(x=1)), Node.C()).same
    assert explain(Node.C(leaf=Leaf.C(note="a")), Node.C(leaf=Leaf.C(note="b"))).same


def test_the_text_is_for_people() -> None:
    first, second = Node.C(value=1, leaf=Leaf.C(x=1)), Node.C(value=2, leaf=Leaf.C(x=2))
    assert str(explain(first, second)) == (
        "different identities, because\n"
        "- value: 1 (int) in the first, 2 (int) in the second\n"
        "- leaf.x: 1 (int) in the first, 2 (int) in the second"
    )
    assert str(explain(Leaf.C(), Other.C())).startswith(
        "different identities, because\n- the config itself: it is a"
    )


def test_a_value_that_is_marked_as_meta_is_told() -> None:
    not_counted = "not counted (marked as meta)"
    leaf = f"a {__name__}.Leaf"
    marked = setmeta(Leaf.C(), True)
    assert told(Node.C(leaf=marked), Node.C(leaf=Leaf.C())) == [("leaf", not_counted, leaf)]
    assert told(of([marked]), of([Leaf.C()])) == [("value[0]", not_counted, leaf)]
    assert told(Node.C(hidden=setmeta(Leaf.C(), False)), Node.C()) == [("hidden", leaf, not_counted)]


def test_origins_and_init_tasks_are_told() -> None:
    came, set_up = of(1), of(1)
    came._state.origin = Leaf.C(x=1)
    set_up._state.init_tasks = (Leaf.C(x=1),)
    other = of(1)
    other._state.origin = Leaf.C(x=2)
    assert told(came, of(1)) == [("<task it came from>", f"a {__name__}.Leaf", "None")]
    assert told(came, other) == [("<task it came from>.x", "1 (int)", "2 (int)")]
    assert [path for path, *_ in told(set_up, of(1))] == ["<init_tasks>"]


def test_two_classes_of_one_id_are_told_apart() -> None:
    class First(Config):
        __xpmid__ = "explain.same"
        x: Param[int] = 1
        version: Constant[int] = 1

    class Second(Config):
        __xpmid__ = "explain.same"
        x: Param[int] = 2
        version: Constant[int] = 1

    class Third(Config):
        __xpmid__ = "explain.same"
        version: Constant[int] = 1
        y: Param[int]

    ((path, *words),) = told(First.C(x=1), Second.C(x=1))
    assert path == ""
    assert [word.rpartition(".")[2] for word in words] == ["First", "Second"]
    assert ("y", "no such parameter", "3 (int)") in told(First.C(x=1), Third.C(y=3))


def test_shared_parts_are_told_once_for_each_place() -> None:
    one, other = Leaf.C(x=1), Leaf.C(x=2)
    assert [path for path, *_ in told(of([one, one]), of([other, other]))] == ["value[0].x"]


def test_long_values_and_many_differences_are_cut() -> None:
    ((_, first, _),) = told(of("a" * 1000), of("b"))
    assert len(first) < 100
    many = explain(of([Leaf.C(x=n) for n in range(500)]), of([Leaf.C(x=-n - 1) for n in range(500)]))
    assert len(many.differences) == MAX_DIFFERENCES
