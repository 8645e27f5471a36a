"""The libraries people train with: forked from a warm parent, or fresh with the reason."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tenuto.launchers.warm.launcher import WarmLauncher
from tenuto.testing.contracts.launchers import finished
from tenuto.testing.jobs import ReadyJob
from tenuto.workspace.ports import Machine

ROOT = Path(__file__).parents[2]

LIBRARIES = {
    "numpy": ("import numpy", "numpy.dot(numpy.ones((300, 300)), numpy.ones((300, 300))).sum()", None),
    "pandas": ("import pandas", "pandas.DataFrame({'a': [1, 2]}).a.sum()", None),
    "sklearn": (
        "from sklearn.ensemble import RandomForestClassifier as Forest",
        "Forest(5, n_jobs=2, random_state=0).fit([[0], [1]], [0, 1]).predict([[1]])[0]",
        None,
    ),
    "lightgbm": (
        "import lightgbm",
        "lightgbm.LGBMRegressor(verbose=-1, n_jobs=2).fit([[0], [1]] * 20, [0, 1] * 20).n_features_",
        None,
    ),
    "pyarrow": ("import pyarrow.compute", "pyarrow.compute.sum(pyarrow.array([1, 2, 3])).as_py()", None),
    "polars": ("import polars", "polars.DataFrame({'a': [1, 2]})['a'].sum()", "starts threads"),
    "a library like pyarrow": (  # jemalloc has a thread, and is right with forks
        """
        import _thread, threading
        begun, held = threading.Lock(), threading.Lock()
        begun.acquire(); held.acquire()
        def background():
            Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text("jemalloc_bg_thd")
            begun.release(); held.acquire()
        _thread.start_new_thread(background, ())
        begun.acquire()
        """,
        "len(os.listdir('/proc/self/task'))",
        None,
    ),
    "a library like PyTorch": (
        """
        for name in ("torch_like.ops", "torch_like.classes"):
            odd = type(sys)(name); odd.__file__ = "_" + name + ".py"; sys.modules[name] = odd
        import mmap
        mapped = mmap.mmap(-1, 600 << 20)
        """,
        "len(mapped) >> 20",
        None,
    ),
}
"""name -> what a task's module does on import, what its task computes, and why it is not forked."""

PROVEN = {
    "xgboost": (
        "import xgboost",
        "xgboost.XGBRegressor(n_estimators=2, n_jobs=2).fit([[0], [1]] * 20, [0, 1] * 20).n_features_in_",
        None,
    ),
    "jax": ("import jax", "jax.numpy.ones((300, 300)).sum()", None),
    "torch": ("import torch", "torch.ones((300, 300)).sum()", None),
}
"""The same for packages that only `make prove` installs; PyTorch is tested where it is installed already."""


@pytest.mark.slow
@pytest.mark.parametrize("name", LIBRARIES)
def test_a_task_that_uses_a_library_is_forked_or_says_why_not(
    name: str, task: Callable[..., ReadyJob], run: Callable[..., object], machine: Machine
) -> None:
    assert why_fresh(LIBRARIES[name], task, run, machine) == LIBRARIES[name][2]


@pytest.mark.slow
@pytest.mark.prove("the packages are large")
@pytest.mark.parametrize("name", PROVEN)
def test_a_task_that_uses_a_large_library_is_forked_or_says_why_not(
    name: str, task: Callable[..., ReadyJob], run: Callable[..., object], machine: Machine
) -> None:
    if name == "torch":
        pytest.importorskip("torch", reason="its wheel is larger than all others together")
    assert why_fresh(PROVEN[name], task, run, machine) == PROVEN[name][2]


def why_fresh(
    library: tuple[str, str, str | None],
    task: Callable[..., ReadyJob],
    run: Callable[..., object],
    machine: Machine,
) -> str | None:
    """Why a task that uses a library was not forked: the words that are expected, or all that was said."""
    imports, computed, why = library
    launcher = WarmLauncher(machine)
    body = f'value = {computed}\nreturn [float(value), "--warm" in Path("/proc/self/cmdline").read_text()]'
    job = task(body, before=textwrap.dedent(imports))
    run(finished(launcher, job))
    launcher.close()
    marker = job.marker()
    assert marker.reason is None, Path(job.paths.err).read_text()
    assert marker.result[1] is ("fresh" not in marker.provenance), marker.provenance
    said = marker.provenance.get("fresh")
    return why if why and said and why in said else said


def test_the_page_on_the_warm_launcher_has_a_row_for_each_library() -> None:
    page = (ROOT / "docs" / "performance.md").read_text()
    assert [name for name in (*LIBRARIES, *PROVEN) if f"| {name} |" not in page] == []
