"""Services of an experiment: started when added, stopped when it is left, whatever they raise."""

from __future__ import annotations

from .scripts import Place, python, run

SCRIPT = """
class Page(Service):
    def __init__(self, id, fails=False):
        self.id, self.fails = id, fails
    def start(self):
        note(f"start {self.id}")
    def stop(self):
        note(f"stop {self.id}")
        if self.fails:
            raise RuntimeError("cannot stop")

with experiment(HERE / "ws", "served") as xp:
    xp.add_service(Page("one"))
    xp.add_service(Page("two", fails=True))
    Note.C(name="job").submit()
"""


def test_services_are_stopped_after_the_jobs_and_before_the_run_ends(place: Place) -> None:
    result = run(python(place.script(SCRIPT)), place.directory)
    assert result.returncode == 0, result.stderr
    assert place.ledger() == ["start one", "start two", "job", "stop two", "stop one"]
    assert "cannot stop" in result.stderr
    (events,) = place.workspace.glob("experiments/served/*/events/*.jsonl")
    written = events.read_text()
    assert written.count("ServiceAddedEvent") == written.count("ServiceStateChangedEvent") == 2
    assert written.index("stopped") < written.index("RunCompletedEvent")
    assert place.state("served") == "done"


def test_services_are_stopped_when_the_script_raises(place: Place) -> None:
    script = place.script(SCRIPT + "    raise ValueError('oops')\n")
    result = run(python(script), place.directory)
    assert result.returncode == 1
    noted = [line for line in place.ledger() if line != "job"]  # which goes on, and may come last
    assert noted == ["start one", "start two", "stop two", "stop one"]


def test_a_service_that_cannot_start_is_an_error_of_the_script(place: Place) -> None:
    body = SCRIPT.replace('note(f"start {self.id}")', "raise OSError('the port is taken')")
    result = run(python(place.script(body)), place.directory)
    assert result.returncode == 1
    assert "the port is taken" in result.stderr
    assert place.ledger() == []
