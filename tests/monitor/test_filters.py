"""Owns the filter language: what matches, where an error points, and that no text breaks it."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from enum import Enum, IntEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.errors import FilterError
from tenuto.jobs.filters import (
    ANY,
    DEEPEST,
    LONGEST,
    And,
    ComparedValue,
    Filter,
    Form,
    Not,
    Or,
    Term,
    names,
    parse_filter,
)


class State(IntEnum):
    RUNNING = 4


class Reason(Enum):
    MEMORY = "out of memory"


JOB = {
    "state": State.RUNNING,
    "reason": None,
    "task": "my.Train",
    "run": "20250330_120005",
    "id": "0123abc",
    "duration": 330.5,
    "lr": 0.05,
    "epochs": 10,
    "name": "it's",
    "deep": True,
    "text number": "1e3",
    "started": datetime(2025, 3, 30, 12, tzinfo=UTC),
    "loss": math.nan,
    "best": math.inf,
    "huge": 10**400,
}


@pytest.mark.parametrize(
    "text",
    [
        "state=running and lr<0.1 and task~train",
        "state = RUNNING",
        "STATE=x or state=running".replace("STATE", "other"),
        "lr=5e-2",
        "lr=.05",
        "lr<=0.05 and lr>=0.05 and lr!=0.06",
        "lr='0.05'",
        "epochs=10.0",
        "epochs>9 AND NOT epochs>10",
        "not(lr=1)and(epochs=10)",
        "reason=none and state!=none",
        "missing=none and missing!=3 and not missing<3 and not missing~x",
        "duration>5m and duration<1h30m and duration>=330s and duration<0.1d",
        "run>=20250101 and run<20260101",
        "started>2025-03-01 and started<2025-03-30T13",
        "task~/^my\\.T/ and not task~/^T/",
        "task~my.train",
        "name=\"it's\" and name='it\\'s'",
        "deep=true and deep!=false",
        '"text number"=1000 and "text number">999',
        "loss=nan and not loss<1 and best=inf and best>1e308",
        "huge>1e308 and huge!=1",
        "lr=1 or epochs=10 and state=running",
        "id~0123 and id!=123",
        "task=my.Train and task!=my.train",
        f"epochs<{'9' * 400}",
    ],
)
def test_a_filter_matches_a_job(text: str) -> None:
    assert parse_filter(text).matches(JOB)


@pytest.mark.parametrize(
    "text", ["lr<abc", "lr>abc", "(lr=1 or epochs=10) and state=done", "task='train'", "deep=1", 'lr="5e-2"']
)
def test_a_filter_does_not_match_another_job(text: str) -> None:
    assert not parse_filter(text).matches(JOB)


def test_a_reason_is_matched_by_its_name() -> None:
    assert parse_filter("reason=memory").matches({"reason": Reason.MEMORY})


def test_and_binds_stronger_than_or() -> None:
    a, b, c = (Term(name, "=", ComparedValue("1", Form.WORD)) for name in "abc")
    assert parse_filter("a=1 or b=1 and c=1") == Or((a, And((b, c))))
    assert parse_filter("not a=1 and b=1") == And((Not(a), b))
    assert list(names(parse_filter("a=1 or not (b=1 and c=1)"))) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("text", "position", "problem"),
    [
        ("", 0, "expected a field"),
        ("state", 5, "expected one of = != < <= > >= ~ after 'state'"),
        ("state=running adn lr<0.1", 14, "expected 'and', 'or' or the end"),
        ("state=", 6, "expected a value"),
        ("state==x", 6, "expected a value"),
        ("(lr=1", 0, "never closed"),
        ("(lr=1 x", 6, "expected 'and', 'or' or ')'"),
        ("lr=1)", 4, "expected 'and', 'or' or the end"),
        ("a='x", 2, "quote is never closed"),
        ("a=and", 2, 'write "and" if'),
        ("lr=1 and", 8, "expected a field"),
        ("a~/x", 2, "no closing /"),
        ("a~/x(/", 4, "not a regular expression"),
        ("a~/b{99999999999}/", 3, "not a regular expression"),
        ("not", 3, "expected a field"),
        ("日本=1 x", 5, "expected 'and'"),
    ],
)
def test_an_error_points_at_the_character(text: str, position: int, problem: str) -> None:
    with pytest.raises(FilterError) as caught:
        parse_filter(text)
    assert (caught.value.text, caught.value.position) == (text, position)
    assert problem in str(caught.value)


def test_the_pointer_stands_below_the_character() -> None:
    with pytest.raises(FilterError) as caught:
        parse_filter("日本='a\x1b' x")
    assert str(caught.value) == "日本='a\\x1b' x\n" + " " * 13 + "^ expected 'and', 'or' or the end"


def test_a_slip_in_a_known_value_is_an_error() -> None:
    choices = {"state": ["RUNNING", "DONE"]}
    with pytest.raises(FilterError, match="did you mean running"):
        parse_filter("state=runing", choices=choices)
    parse_filter("state=done or state=NONE or state~run or other=runing", choices=choices)


def test_regular_expressions_can_be_forbidden() -> None:
    with pytest.raises(FilterError, match="not allowed here"):
        parse_filter("a~/x/", regex=False)


@pytest.mark.parametrize("text", ["(" * 5000, "(" * (DEEPEST + 5), "not " * 900, "a=1 or " * LONGEST])
def test_too_much_is_refused(text: str) -> None:
    with pytest.raises(FilterError):
        parse_filter(text)


def test_many_terms_are_no_deeper_than_one() -> None:
    assert parse_filter(" and ".join(["lr<1"] * 400)).matches(JOB)


# -- properties --------------------------------------------------------------------------------------

texts = st.text(max_size=12)
words = st.from_regex(r"\A[^\s()\"'=!<>~/]+\Z").filter(lambda w: w.lower() not in {"and", "or", "not"})
values = st.builds(ComparedValue, words, st.just(Form.WORD)) | st.builds(
    ComparedValue, texts, st.just(Form.STRING)
)
fields = (words | texts).filter(
    lambda field: field != ANY
)  # whose terms are words alone, where a search box has them
comparisons = st.builds(
    Term, fields, st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "~"]), values
) | st.builds(
    Term,
    fields,
    st.just("~"),
    st.builds(ComparedValue, st.sampled_from(["a", r"\/x", r"^[ab]+$", r"\\", ""]), st.just(Form.REGEX)),
)


def combined(inner: st.SearchStrategy[Filter]) -> st.SearchStrategy[Filter]:
    several = st.lists(inner, min_size=2, max_size=4).map(tuple)
    return st.builds(Not, inner) | st.builds(And, several) | st.builds(Or, several)


trees: st.SearchStrategy[Filter] = st.recursive(comparisons, combined, max_leaves=12)
pieces = st.sampled_from(
    [
        "a",
        "lr",
        "=",
        "!=",
        "<",
        ">=",
        "~",
        "/",
        "(",
        ")",
        " ",
        "and",
        " or ",
        "not ",
        '"',
        "'",
        "\\",
        "1",
        "[",
        "*",
    ]
)
anything = st.none() | st.booleans() | st.integers() | st.floats() | texts | st.sampled_from([State.RUNNING])


@given(trees)
def test_a_tree_survives_being_written_and_read(tree: Filter) -> None:
    assert parse_filter(str(tree)) == tree


@given(texts | st.lists(pieces, max_size=14).map("".join), st.dictionaries(texts | st.just("a"), anything))
def test_any_text_is_read_or_refused(text: str, fields: dict[str, object]) -> None:
    try:
        tree = parse_filter(text)
    except FilterError as error:
        position = error.position
        assert 0 <= position <= len(text)
        return
    assert parse_filter(str(tree)) == tree
    tree.matches(fields)


@given(trees, st.dictionaries(st.sampled_from("abc") | texts, anything))
def test_any_tree_decides_and_not_is_its_opposite(tree: Filter, fields: dict[str, object]) -> None:
    assert Not(tree).matches(fields) is not tree.matches(fields)


def test_plain_words_are_looked_for_everywhere_only_where_a_person_searches() -> None:
    found = {ANY: ("0123abc", "my.Train", "lr=0.05", "out of memory"), "state": State.RUNNING}
    for text in (
        "train",
        "0123 TRAIN",
        "state=running memory",
        "(abc or xyz) lr=0.05".replace("lr=0.05", "train"),
    ):
        assert parse_filter(text, words=True).matches(found), text
        with pytest.raises(FilterError):
            parse_filter(text)
    assert not parse_filter("train xyz", words=True).matches(found)
    assert not parse_filter("not train", words=True).matches(found)
    assert str(parse_filter("state=running my train", words=True)) == "state=running and my and train"
    for text in ("state=", "a )", "(a", "'a"):
        with pytest.raises(FilterError):
            parse_filter(text, words=True)
