"""Owns the driver of W9: candidates of a search, and what runs the same work without one.

search.py embedded|experiment|optuna|dramatiq|steady|asks|agents COUNT [URL], search.py tick ROWS [URL], or
search.py idle SECONDS; in an empty directory
"""

import os
import statistics
import subprocess
import sys
import time

from account import Account

SLOTS = 2
TICKS = 15
FILLED = 50_000


def evolution(name, count, url=None):
    from bench_tasks import Scored

    from tenuto.search import Evolution, Integer, RandomSearch

    if url:
        os.environ["TENUTO_DATABASE__URL"] = url
    space = {"number": Integer(0, 10**9)}
    sampler = RandomSearch()
    return Evolution(name, Scored, space=space, sampler=sampler, max_total_jobs=count, workdir="ws")


def embedded(count, url):
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    statements = [0]

    @event.listens_for(Engine, "before_cursor_execute")
    def note(*_):
        statements[0] += 1

    search = evolution("w9", count)
    account = Account()
    result = search.run(slots=SLOTS)
    account.stop()
    assert result.succeeded == count, result
    account.report(statements=statements[0] / count)


def plain_experiment(count, url):
    from bench_tasks import Scored

    from tenuto import experiment
    from tenuto.launchers.selection import choose_launcher

    account = Account()
    chosen = choose_launcher("warm", SLOTS)
    with experiment("ws", "w9", launcher=chosen):
        for number in range(count):
            Scored.C(number=number).submit()
    account.stop()
    chosen.close()
    account.report()


def optuna_alone(count, url):
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    account = Account()
    study.optimize(lambda trial: trial.suggest_int("number", 0, 10**9), n_trials=count)
    account.stop()
    account.report()


def asks(count, url):
    """So many asks and tells of TPE through a study of ours and through Optuna's own, in turns."""
    import optuna

    from tenuto.search import OptunaSampler, Outcome, Real, Study

    names = ["a", "b", "c", "d"]
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    ours = Study({name: Real(0, 1) for name in names}, OptunaSampler("tpe"), seed=1)
    theirs = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.TPESampler(seed=1, constant_liar=True)
    )
    spent = [0.0, 0.0]
    account = Account()
    for _ in range(count):
        began = time.process_time()
        one = ours.ask()
        ours.tell(one.number, Outcome(sum(one.values.values())))
        between = time.process_time()
        trial = theirs.ask()
        theirs.tell(trial, sum(trial.suggest_float(name, 0, 1) for name in names))
        spent = [spent[0] + between - began, spent[1] + time.process_time() - between]
    account.stop()
    account.report(ratio=spent[0] / spent[1], ask_s=spent[0] / count)


AGENT_S, EVALUATION_S = 20.0, 2.0


def agents(count, url):
    """Programs whose agents sleep ten times as long as their evaluations: how busy the evaluations are."""
    import dataclasses
    from pathlib import Path

    from tenuto.search import Evolution, Repository
    from tenuto.settings import load_settings

    folder = Path("repo")
    folder.mkdir()
    (folder / "value.txt").write_text("0\n")
    (folder / "evaluate.py").write_text(
        "import time, sys\nbegan = time.time()\n"
        f"time.sleep({EVALUATION_S})\n"
        'print(\'{"objective": 1, "metrics": {"began": %r, "ended": %r}}\' % (began, time.time()))\n'
    )
    (folder / "agent.py").write_text(
        f"import os, time\ntime.sleep({AGENT_S})\nopen('value.txt', 'w').write(os.environ['EVOLVE_SEED'])\n"
    )
    git = ["git", "-C", str(folder), "-c", "user.name=b", "-c", "user.email=b@localhost"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "root"]):
        subprocess.run([*git, *words], check=True)
    settings = load_settings()
    slots = dataclasses.replace(settings.search, agent_slots=12)
    search = Evolution(
        "w9",
        Repository(
            folder, agent=["{python}", "agent.py"], evaluate=["{python}", "evaluate.py"], confine="none"
        ),
        max_total_jobs=count,
        workdir="ws",
        settings=dataclasses.replace(settings, search=slots),
    )
    account = Account()
    result = search.run(slots=1)
    account.stop()
    spans = sorted((row["began"], row["ended"]) for row in result.rows()[1:] if row["objective"] == 1)
    busy = sum(ended - began for began, ended in spans)
    account.report(busy_percent=100 * busy / (spans[-1][1] - spans[0][0]), evaluated=len(spans))


def bare_dramatiq(count, url):
    """Each message starts the process that a job would, without directory, marker or row."""
    import threading

    import dramatiq
    import redis
    from dramatiq.brokers.redis import RedisBroker

    broker = RedisBroker(client=redis.Redis.from_url(url), middleware=[])
    done = threading.Semaphore(0)

    @dramatiq.actor(broker=broker)
    def work(number):
        subprocess.run([sys.executable, "-c", "import bench_tasks"], check=True, env=os.environ)
        done.release()

    os.environ["PYTHONPATH"] = os.pathsep.join([os.path.dirname(__file__), *filter(None, sys.path)])
    worker = dramatiq.Worker(broker, worker_threads=SLOTS)
    worker.start()
    account = Account()
    for number in range(count):
        work.send(number)
    for _ in range(count):
        assert done.acquire(timeout=60)
    account.stop()
    worker.stop()
    account.report()


def tick(rows, url):
    """The time of a tick in which a candidate was told, and one made; and of a restart."""
    from sqlalchemy import text

    first = evolution("w9", None, url)
    opened = first.open()
    database = opened.store.database
    counter = "WITH RECURSIVE c(n) AS (SELECT :first UNION ALL SELECT n + 1 FROM c WHERE n < :last)"
    series = (
        "generate_series(CAST(:first AS BIGINT), CAST(:last AS BIGINT)) AS g(n)"
        if url
        else f"({counter} SELECT n FROM c)"
    )
    fill = f"""
        INSERT INTO evolution_jobs (id, search_id, number, status, created_at, scheduled_at, task_id, job_id,
            params, proposal, asked_after, completed_at, told, outcome, objective, cost, verdict)
        SELECT CAST(n AS VARCHAR(32)), 'w9', n, 'SUCCEEDED', n, n, 'bench_tasks.Scored',
            CAST(n AS VARCHAR(32)), '{{}}', '{{"values": {{"number": 1}}, "inspirations": []}}', 0, n, n,
            '{{"objective": 1, "measures": []}}', 1, 0, 'worse' FROM {series}"""
    counted = f"UPDATE searches SET scheduled = {rows}, told = {rows} WHERE id = 'w9'"
    for start in range(1, rows + 1, FILLED):  # a server ends a statement that takes long
        part = {"first": start, "last": min(start + FILLED - 1, rows)}
        database.write(lambda c, part=part: c.execute(text(fill), part))
    database.write(lambda c: c.execute(text(counted)))
    database.write(lambda c: c.execute(text("ANALYZE")))
    first.close()
    began, used = time.perf_counter(), time.process_time()
    search = evolution("w9", None, url)
    scheduler = search.scheduler()
    scheduler.tick()
    restart_s, restart_cpu_s = time.perf_counter() - began, time.process_time() - used
    took = []
    store = search.open().store
    for _ in range(TICKS):
        finish_one(store)
        began, used = time.perf_counter(), time.process_time()
        counts = scheduler.tick()
        took.append((time.perf_counter() - began, time.process_time() - used))
        assert counts["ingested"] == 1, counts
    account = Account()
    account.stop()
    tick_s, tick_cpu_s = map(statistics.median, zip(*took, strict=True))
    account.report(tick_s=tick_s, tick_cpu_s=tick_cpu_s, restart_s=restart_s, restart_cpu_s=restart_cpu_s)
    search.close()


def steady(count, url):
    """How much the memory of a worker grows over the last four fifths of so many candidates."""
    search = evolution("w9", count)
    agent = beside(search)
    scheduler = search.scheduler()
    grown_from = None
    while agent.evaluated < count:
        scheduler.tick()
        if grown_from is None and agent.evaluated >= count // 5:
            grown_from = memory_bytes()
        time.sleep(0.002)
    grown = memory_bytes() - grown_from
    leave(search, agent, grown_bytes=grown)


def idle(seconds, url):
    """The CPU of a scheduler and a worker whose only candidate is evaluated elsewhere."""
    import threading

    search = evolution("w9", 1)
    scheduler = search.scheduler()
    scheduler.tick()
    search.open().store.claim("elsewhere", 1, 3_600_000)
    agent = beside(search)
    ticking = threading.Thread(target=scheduler.run_forever)
    ticking.start()
    time.sleep(1)
    began, used = time.monotonic(), time.process_time()
    time.sleep(seconds)
    percent = 100 * (time.process_time() - used) / (time.monotonic() - began)
    scheduler.stop()
    ticking.join()
    leave(search, agent, percent=percent)


def beside(search):
    """A worker's agent in this process."""
    from pathlib import Path

    from tenuto.search.worker_loop import WorkerLoop
    from tenuto.workspace.machine import this_machine

    agent = WorkerLoop(
        search.open().store, search.settings, Path("ws").resolve(), this_machine(), slots=SLOTS
    )
    agent.start()
    return agent


def leave(search, agent, **found):
    """Ends the worker and the search, and reports what was found meanwhile."""
    agent.leave()
    agent.join()
    account = Account()
    account.stop()
    account.report(**found)
    search.close()


def memory_bytes():
    import gc

    gc.collect()
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def finish_one(store):
    from tenuto.lifecycle.evolution import EvolutionStatus
    from tenuto.search.rows import End

    (row,) = store.claim("bench", 1, 60_000)
    outcome = '{"objective": 1, "measures": []}'
    store.finish([End(row.id, row.attempt, EvolutionStatus.SUCCEEDED, outcome, 1.0, 0.0)], 3)


MODES = {
    "embedded": embedded,
    "experiment": plain_experiment,
    "optuna": optuna_alone,
    "dramatiq": bare_dramatiq,
    "asks": asks,
    "agents": agents,
    "tick": tick,
    "steady": steady,
    "idle": idle,
}

if __name__ == "__main__":
    MODES[sys.argv[1]](int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None)
