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
from tenuto.testing.queues import FakeQueue
from tests.search.tasks_for_search import Square

class Console:
    def print(self, *objects): pass

url, folder = sys.argv[1:]
settings = replace(Settings(), database=DatabaseSettings(url=Url(url)),
                   search=SearchSettings(max_unfinished_jobs=30, max_total_jobs=25))
evolution = Evolution("s", Square, space={"x": Real(0, 1)}, sampler=RandomSearch(), workdir=folder,
                      settings=settings)
jobs = JobScheduler(evolution.settings, Console(), evolution.sampler, "s", store=evolution.open().store,
                    queue=FakeQueue())
print("ready", flush=True)
sys.stdin.readline()
for _ in range(8):
    jobs.schedule_jobs(0, total_scheduled_jobs=0)
"""


@pytest.mark.slow
def test_3_processes_that_schedule_without_pause_end_at_the_cap(database_url: str, tmp_path: Path) -> None:
    url = database_url if "://" in database_url else f"sqlite:///{database_url}"
    database = Database(url)
    migrate(database, MIGRATIONS)

    def press() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", PRESS, url, str(tmp_path / "w")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    processes = [press() for _ in range(3)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    time.sleep(0.2)
    processes[0].kill()
    for process in processes:
        process.communicate(timeout=90)
    assert [process.returncode for process in processes[1:]] == [0, 0]
    store = Store(database)
    search = store.search("s")
    assert search is not None
    assert search.scheduled == store.count_unfinished("s") == 25
    database.close()
