"""Owns that experiments work where an event loop runs already, and look right in a notebook."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tenuto import Config, Param, Task, setmeta

from .scripts import Place, python, run

RUN_NOTEBOOK = """
import json, sys
import nbclient, nbformat
cells = json.loads(open("cells.json").read())
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
nbclient.NotebookClient(notebook, timeout=60, kernel_name="python3", allow_errors=True).execute()
print(json.dumps([cell.outputs for cell in notebook.cells]))
"""


def notebook(place: Place, *cells: str, **variables: str) -> list[list[dict[str, Any]]]:
    """The outputs of the cells, from a real kernel."""
    place.script("pass", name="lab.py")
    (place.directory / "cells.json").write_text(json.dumps(cells))
    script = place.directory / "run_notebook.py"
    script.write_text(RUN_NOTEBOOK)
    here = str(place.directory)
    book = f"{here}/lab-book.ipynb"  # as Jupyter's server tells it
    given = {"JPY_SESSION_NAME": book, **variables}
    result = run(python(script), place.directory, IPYTHONDIR=here, HOME=here, **given)
    assert result.returncode == 0, result.stderr
    outputs: list[list[dict[str, Any]]] = json.loads(result.stdout.splitlines()[-1])
    return outputs


@pytest.mark.slow
def test_notebooks_without_a_name_do_not_share_results(place: Place) -> None:
    told = []
    for power in (2, 3):
        use = (
            "try:\n    with experiment('ws', 'x'):\n        sq = Sq.C(x=3).submit()\n    print(sq.result())\n"
        )
        cells = (
            "from tenuto import Param, Task, experiment",
            f"class Sq(Task):\n    x: Param[int]\n    def execute(self):\n        return self.x**{power}",
            f"{use}except Exception as error:\n    print(error)",
        )
        outputs = notebook(place, *cells, JPY_SESSION_NAME="")
        told.append("".join(one["text"] for one in outputs[-1] if one.get("name") == "stdout"))
    assert told[0] == "9\n"
    assert "name the notebook, by JPY_SESSION_NAME" in told[1]
    named = notebook(place, *cells, JPY_SESSION_NAME=f"{place.directory}/other.ipynb")
    assert "27" in json.dumps(named[-1]), "the remedy works"


@pytest.mark.slow
def test_an_experiment_in_a_notebook(place: Place) -> None:
    outputs = notebook(
        place,
        "import asyncio, sys\nsys.path.insert(0, '.')\nfrom lab import *\nfrom tenuto import experiment\n"
        "from tenuto.errors import ClassNotFound",
        "assert asyncio.get_running_loop().is_running()\n"
        "with experiment('ws', 'cells', register_signals=True) as xp:\n"
        "    noted = Note.C(name='<b>a</b>').tag('t', 1).submit()\n"
        "noted.job.result()",
        "noted",
        "noted.job",
        "xp",
        # a cell with an `await` runs in a task of its own
        "await asyncio.sleep(0)\n"
        "with experiment('ws', 'cells') as xp:\n"
        "    more = Note.C(name='b').submit()\n"
        "    await asyncio.to_thread(xp.wait)\n"
        "    more.job.result()\n"
        "print(more.job.result(), len(xp.jobs))",
        # classes of cells
        "from dataclasses import dataclass\nSIZE = 3\n\ndef grown(n):\n    return n + SIZE",
        "@dataclass\nclass Grown:\n    n: int\n\n"
        "class Seed(Config):\n    n: Param[int]\n\n"
        "class Grow(Task):\n    seed: Param[Seed]\n"
        "    def execute(self):\n        return Grown(grown(self.seed.n))",
        "with experiment('ws', 'cells') as xp:\n    one = Grow.C(seed=Seed.C(n=1)).submit()\n"
        "print(one.result(), isinstance(one.result(), Grown), one.job.task_id)",
        "def grown(n):\n    return n * 10",
        "with experiment('ws', 'cells') as xp:\n    Grow.C(seed=Seed.C(n=1)).submit()\nprint(xp.notes)",
        "with experiment('ws', 'cells', rerun_changed=True):\n    one = Grow.C(seed=Seed.C(n=1)).submit()\n"
        "print(one.result())",
        "for late in (1,):\n    pass\n\nclass Bad(Task):\n    def execute(self):\n        return late",
        "try:\n    with experiment('ws', 'cells'):\n        Bad.C().submit()\n"
        "except ClassNotFound as error:\n    print(error)",
        "with experiment('ws', 'cells'):\n    Note.C(name='b').submit()",
        "for late in (1,):\n    class Looped(Task):\n        def execute(self):\n            return 1\n"
        "try:\n    with experiment('ws', 'cells'):\n        Looped.C().submit()\n"
        "except ClassNotFound as error:\n    print(error)",
        "import os, signal\nwith experiment('ws', 'cells', register_signals=True):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n",
        "print('the kernel stays')",
    )
    assert outputs[1][-1]["data"]["text/plain"] == "'<b>a</b>'"
    bars = [one["data"]["text/html"] for one in outputs[1] if one["output_type"] == "display_data"]
    assert len(bars) == 1
    assert re.match(r"<pre>cells .* 1/1 100% ETA", bars[0]), bars
    for cell, expected in ((2, "Note.C"), (3, "DONE"), (4, "experiment cells")):
        html = outputs[cell][-1]["data"]["text/html"]
        assert expected in html
        checked(html)
    assert outputs[5][-1]["text"] == "b 1\n"
    assert sorted(place.ledger()) == ["<b>a</b>", "b"]
    printed = [
        "".join(one.get("text", "") for one in cell if one.get("name") == "stdout") for cell in outputs[6:]
    ]
    assert printed[2] == "Grown(n=4) True lab_book.Grow\n"
    assert "1 job was reused, though lab-book.ipynb has changed since" in printed[4]
    assert printed[5] == "Grown(n=10)\n"
    assert "Bad uses late, which a cell makes in a way that a job cannot repeat" in printed[7]
    (reused,) = [one["data"]["text/html"] for one in outputs[14] if one["output_type"] == "display_data"]
    assert re.search(r" 1/1 100% .*\n1 reused", reused), "of an earlier cell"
    assert "Looped is made by a cell in a way that a job cannot repeat" in printed[9]
    ended = [one["ename"] for one in outputs[16] if one["output_type"] == "error"]
    assert ended == ["KeyboardInterrupt"]
    assert "Interrupt again to leave them running" in json.dumps(outputs[16])
    assert printed[11] == "the kernel stays\n"
    kept = list(place.workspace.glob(".notebooks/lab_book-*.py"))
    assert len(kept) == 2, "one for each version of what Grow uses"


def test_an_experiment_inside_a_running_loop(place: Place) -> None:
    script = place.script(
        """
import asyncio

async def main():
    with experiment(HERE / "ws", "async") as xp:
        job = After.C(before=Note.C(name="a").submit()).submit().job
        await asyncio.to_thread(xp.wait)
    return job.state.name

print(asyncio.run(main()))
"""
    )
    result = run(python(script), place.directory)
    assert result.stdout == "DONE\n", result.stderr
    assert place.ledger() == ["a", "after a"]


def test_an_experiment_can_be_left_in_another_context_than_it_was_entered_in(place: Place) -> None:
    script = place.script(
        """
from contextvars import copy_context
xp = experiment(HERE / "ws", "cells")
first = copy_context()
first.run(xp.__enter__)
first.run(lambda: Note.C(name="a").submit())
copy_context().run(xp.__exit__, None, None, None)
print(xp.jobs[0].result())
"""
    )
    assert run(python(script), place.directory).stdout == "a\n"


# -- what is shown -----------------------------------------------------------------------------------


class Inner(Config):
    name: Param[str]


class Outer(Task):
    inner: Param[Inner]
    many: Param[list[Inner]] = []
    text: Param[str] = ""
    path: Param[Path] = Path("x")


class _Checker(HTMLParser):
    allowed = {"div", "strong", "table", "tr", "th", "td", "details", "summary", "span"}

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in self.allowed, tag
        assert {name for name, _ in attrs} <= {"style"}, attrs
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def checked(html: str) -> str:
    """Only plain tags, all closed, no attributes but styles, and no colour that fits one theme alone."""
    checker = _Checker()
    checker.feed(html)
    checker.close()
    assert checker.open == []
    assert "background" not in html
    assert not re.search(r"color:\s*(black|white|#000|#fff)", html)
    return html


def test_a_config_shows_its_parameters_and_what_is_inside() -> None:
    config = Outer.C(inner=Inner.C(name="in"), many=[Inner.C(name=str(number)) for number in range(20)])
    html = checked(config.tag("lr", 0.1)._repr_html_())
    assert "Outer.C" in html
    assert "<summary>Inner.C</summary>" in html
    assert "&#x27;in&#x27;" in html
    assert "lr=0.1" in html
    assert "and 10 more" in html
    assert len(html) < 20_000
    live = checked(config.instance()._repr_html_())
    assert "Outer " not in live
    assert "Inner" in live


@pytest.mark.parametrize(
    "evil",
    [
        "<script>alert(1)</script>",
        "</td></table><img src=x onerror=alert(1)>",
        "\u202eabc",
        "\ud800",
        "&amp;",
    ],
)
def test_texts_of_others_are_escaped(evil: str) -> None:
    config = Outer.C(inner=Inner.C(name=evil), text=evil, path=Path("y")).tag("t", evil)
    html = checked(config._repr_html_())
    assert "<script" not in html
    assert "<img" not in html
    assert "\u202e" not in html
    html.encode()


def test_a_config_that_is_not_complete_can_be_shown() -> None:
    assert "Outer" in checked(Outer.C()._repr_html_())
    assert "Inner" in checked(Outer.C(inner=setmeta(Inner.C(name="a"), True))._repr_html_())


def test_a_large_graph_is_shown_in_part() -> None:
    assert len(checked(Outer.C(inner=Inner.C(name="x" * 10_000))._repr_html_())) < 5_000
    wide = Outer.C(inner=Inner.C(name="a"), many=[Inner.C(name="y" * 1000) for _ in range(1000)])
    assert len(checked(wide._repr_html_())) < 30_000


def test_a_job_and_an_experiment_show_where_they_stand(place: Place) -> None:
    script = place.script(
        """
with experiment(HERE / "ws", "shown", raise_on_failure=False) as xp:
    failed = Fail.C(name="<i>bad</i>").submit()
    jobs = [Note.C(name=str(number)).tag("n", number).submit().job for number in range(25)]
print(repr(failed.job._repr_html_()), repr(jobs[3]._repr_html_()), repr(xp._repr_html_()), sep="\\n")
"""
    )
    result = run(python(script), place.directory)
    failed, done, xp = map(eval, result.stdout.splitlines())
    assert "ERROR (FAILED)" in checked(failed)
    assert "&lt;i&gt;bad&lt;/i&gt;" in failed
    assert "DONE" in checked(done)
    assert "n=3" in done
    assert "25 done, 1 error" in checked(xp)
    assert xp.index("ERROR") < xp.index("DONE"), "failures first"
    assert "and 6 more" in xp
    assert len(xp) < 15_000
