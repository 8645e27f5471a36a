"""2: the seed's variables give the settings of a search; ours outrank them, and a bad value is named."""

from __future__ import annotations

import pytest

from tenuto.errors import InvalidSetting
from tenuto.search import Evolution, Real
from tests.search.tasks_for_search import Square

VARIABLES = {
    "SCHEDULER_MAX_UNFINISHED_JOBS": ("max_unfinished_jobs", "5", 5),
    "SCHEDULER_MAX_TOTAL_JOBS": ("max_total_jobs", "50", 50),
    "SCHEDULER_SCHEDULE_BATCH_SIZE": ("schedule_batch_size", "3", 3),
    "SCHEDULER_DISPATCH_BATCH_SIZE": ("dispatch_batch_size", "7", 7),
    "SCHEDULER_POLL_INTERVAL_SECONDS": ("poll_interval_s", "0.25", 0.25),
    "TASKS_WORKER_TIME_LIMIT_SECONDS": ("walltime_s", "90", 90.0),
    "MAPELITES_SAMPLER_DEFAULT_PRIORITY": ("default_priority", "-2", -2),
    "MAPELITES_SEED_POPULATION_SIZE": ("seed_population", "8", 8),
    "MAPELITES_SAMPLER_INSPIRATION_COUNT": ("inspirations", "4", 4),
}


def search(**arguments: int) -> Evolution:
    return Evolution("one", Square, space={"x": Real(0, 1)}, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("variable", VARIABLES)
def test_2_a_variable_of_the_seed_is_a_setting_of_the_search(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, text, value = VARIABLES[variable]
    monkeypatch.setenv(variable, text)
    assert getattr(search().settings.search, key) == value
    monkeypatch.setenv(f"TENUTO_SEARCH__{key.upper()}", "1")
    assert getattr(search().settings.search, key) == 1
    monkeypatch.delenv(f"TENUTO_SEARCH__{key.upper()}")
    monkeypatch.setenv(variable, "many")
    with pytest.raises(InvalidSetting, match=f"^{variable}"):
        search().settings


def test_2_the_database_and_the_queue_come_from_the_seeds_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql+psycopg://u:hush@h/d")
    monkeypatch.setenv("TASKS_REDIS_URL", "redis://:hush@h:6379/1")
    settings = search().settings
    assert settings.database.url is not None
    assert settings.queue.url is not None
    assert settings.database.url.reveal() == "postgresql+psycopg://u:hush@h/d"
    assert settings.queue.url.reveal() == "redis://:hush@h:6379/1"
    assert "hush" not in f"{settings!r} {settings.database.url} {settings.queue.url}"
    monkeypatch.setenv("TENUTO_DATABASE__URL", "postgresql://other/d")
    assert search().settings.database.url.reveal() == "postgresql://other/d"  # type: ignore[union-attr]
    for variable, ours in (
        ("DATABASE_URL", "TENUTO_DATABASE__URL"),
        ("TASKS_REDIS_URL", "TENUTO_QUEUE__URL"),
    ):
        monkeypatch.delenv(ours, raising=False)
        monkeypatch.setenv(variable, "no url")
        with pytest.raises(InvalidSetting, match=f"^{variable}"):
            search().settings
        monkeypatch.delenv(variable)


def test_2_arguments_outrank_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENUTO_SEARCH__MAX_TOTAL_JOBS", "7")
    assert search().settings.search.max_total_jobs == 7
    assert search(max_total_jobs=3).settings.search.max_total_jobs == 3
