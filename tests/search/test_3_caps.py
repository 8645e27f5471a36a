"""3: processes that schedule without pause, one of them killed again and again, end at exactly the cap."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tenuto.database import Database, migrate
from tenuto.search.opening import MIGRATIONS
from tenuto.search.store import Store

PRESS = """
import sys
from dataclasses import replace
from tenuto.search import Evolution, JobScheduler, RandomSearch, Real
from tenuto.settings import Settings, Url
from tenuto.settings.search import DatabaseSettings, SearchSettings
from tenuto.testing.contracts.queues import FakeQueue
from tests.search.tasks_for_search import Square

class Console:
    def print(self, *objects): pass

url, folder, which, cap = sys.argv[1:]
caps = {"max_unfinished_jobs": 10**6, "max_total_jobs": None, which: int(cap)}
settings = replace(Settings(), database=DatabaseSettings(url=Url(url)),
                   search=SearchSettings(schedule_batch_size=10, **caps))
evolution = Evolution("s", Square, space={"x": Real(0, 1)}, sampler=RandomSearch(), workdir=folder,
                      settings=settings)
store = evolution.open().store
jobs = JobScheduler(evolution.settings, Console(), evolution.sampler, "s", store=store, queue=FakeQueue())
print("ready", flush=True)
sys.stdin.readline()
while store.search("s").scheduled < int(cap):
    jobs.schedule_jobs(0, total_scheduled_jobs=0)
for _ in range(5):  # it presses on
    jobs.schedule_jobs(0, total_scheduled_jobs=0)
"""
EVERY_S = 0.2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("victims", "which"),
    [
        (2, "max_total_jobs"),
        pytest.param(10, "max_total_jobs", marks=pytest.mark.prove("two seconds of kills")),
        pytest.param(10, "max_unfinished_jobs", marks=pytest.mark.prove("two seconds of kills")),
    ],
)
def test_3_processes_that_schedule_without_pause_end_at_the_cap(
    database_url: str, tmp_path: Path, victims: int, which: str
) -> None:
    """Three press at any time; one of them is killed every 200 ms, and the next victim takes its place."""
    url = database_url if "://" in database_url else f"sqlite:///{database_url}"
    database = Database(url)
    migrate(database, MIGRATIONS)
    cap = 40 * victims
    command = [sys.executable, "-c", PRESS, url, str(tmp_path / "w"), which, str(cap)]

    def press() -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            text=True,
        )

    steady, killed = [press() for _ in range(2)], [press() for _ in range(victims)]
    try:
        for process in steady + killed:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in steady:
            go(process)
        for process in killed:
            go(process)
            time.sleep(EVERY_S)
            process.kill()
    except BaseException:
        for process in steady:
            process.kill()
        raise
    finally:
        for process in killed:
            process.kill()
        for process in steady + killed:
            process.communicate(timeout=90)
    assert [process.returncode for process in steady] == [0, 0]
    store = Store(database)
    search = store.search("s")
    assert search is not None
    assert search.scheduled == store.count_unfinished("s") == cap
    database.close()


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()
