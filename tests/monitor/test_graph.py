"""The layout of graphs: everything is placed once, and what is needed comes before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tenuto.jobs.row import Row
from tenuto.lifecycle.states import JobState
from tenuto.monitor.graph import around, by_task
from tenuto.testing.fake_source import fake_row

GROUP = "experiments:sweep/1"


def rows(made: list[tuple[int, list[int]]]) -> list[Row]:
    """Jobs that depend on earlier ones; the task is given by a number."""
    return [
        fake_row(
            GROUP,
            f"t.T{task}",
            f"id{number}",
            JobState.WAITING,
            depends_on=tuple(f"id{one % number}" for one in needs) if number else (),
        )
        for number, (task, needs) in enumerate(made)
    ]


ROWS = st.lists(st.tuples(st.integers(0, 4), st.lists(st.integers(0, 30), max_size=3)), max_size=25).map(rows)


@given(ROWS)
def test_tasks_are_placed_once_and_count_every_job(made: list[Row]) -> None:
    drawing = by_task(made)
    assert {node["task"] for node in drawing.nodes} == {row.task for row in made}
    assert sum(node["total"] for node in drawing.nodes) == len(made)
    places = [(node["layer"], node["order"]) for node in drawing.nodes]
    assert len(set(places)) == len(places)


@given(ROWS, st.integers(0, 24), st.integers(0, 3))
def test_around_a_job_what_is_needed_comes_before(made: list[Row], which: int, depth: int) -> None:
    if not made:
        return
    centre = made[which % len(made)]
    drawing = around(made, centre.key, depth)
    layer = {node["id"]: node["layer"] for node in drawing.nodes}
    assert centre.key in layer
    assert len(layer) == len(drawing.nodes)
    assert all(layer[edge["from"]] < layer[edge["to"]] for edge in drawing.edges)
    if depth:
        by_id = {row.id: row.key for row in made}
        assert {by_id[one] for one in centre.depends_on} <= layer.keys()


def test_a_job_that_is_not_there_has_no_surroundings() -> None:
    assert not around(rows([(0, [])]), "experiments:t.T0/other", 2).nodes
