"""The waiting graph: who becomes ready, who is stranded, at what cost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tenuto.scheduler.dependencies import WaitingGraph


def test_a_job_that_waits_for_nothing_is_not_entered() -> None:
    graph: WaitingGraph[str] = WaitingGraph()
    assert graph.add("a", [])
    assert len(graph) == 0


def test_a_job_becomes_ready_with_the_last_thing_it_waits_for() -> None:
    graph: WaitingGraph[str] = WaitingGraph()
    assert not graph.add("c", ["a", "b"])
    assert graph.done("a") == []
    assert graph.done("b") == ["c"]
    assert "c" not in graph


def test_a_dependency_named_twice_counts_once() -> None:
    graph: WaitingGraph[str] = WaitingGraph()
    graph.add("b", ["a", "a"])
    assert graph.done("a") == ["b"]


def test_those_that_become_ready_keep_the_order_they_came_in() -> None:
    graph: WaitingGraph[str] = WaitingGraph()
    for name in "zyx":
        graph.add(name, ["a"])
    assert graph.done("a") == ["z", "y", "x"]


def test_a_failure_strands_all_that_follows_and_nothing_else() -> None:
    graph: WaitingGraph[str] = WaitingGraph()
    graph.add("b", ["a"])
    graph.add("c", ["b", "other"])
    graph.add("free", ["other"])
    assert graph.failed("a") == ["b", "c"]
    assert graph.done("other") == ["free"]


def test_a_withdrawn_job_never_becomes_ready() -> None:
    graph: WaitingGraph[str] = WaitingGraph()
    graph.add("b", ["a"])
    assert graph.withdraw("b")
    assert not graph.withdraw("b")
    assert graph.done("a") == []


def test_a_job_that_enters_again_waits_for_all_it_needs() -> None:
    graph: WaitingGraph[str] = WaitingGraph()
    graph.add("c", ["a", "b"])
    assert graph.failed("a") == ["c"]
    graph.add("c", ["a", "b"])
    assert graph.done("b") == []
    graph.withdraw("c")
    graph.add("c", ["a"])
    assert graph.done("a") == ["c"]


def test_a_failing_chain_of_100_000_needs_no_recursion() -> None:
    graph: WaitingGraph[int] = WaitingGraph()
    for number in range(1, 100_000):
        graph.add(number, [number - 1])
    assert len(graph.failed(0)) == 99_999


@given(st.data())
def test_every_job_of_a_random_graph_runs_once_after_all_it_needs(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 30))
    needs = {job: data.draw(st.sets(st.integers(0, max(job - 1, 0)))) - {job} for job in range(size)}
    graph: WaitingGraph[int] = WaitingGraph()
    ready = [job for job in range(size) if graph.add(job, needs[job])]
    done: list[int] = []
    while ready:
        job = ready.pop(data.draw(st.integers(0, len(ready) - 1)))
        assert needs[job] <= set(done)
        done.append(job)
        ready += graph.done(job)
    assert sorted(done) == list(range(size))
