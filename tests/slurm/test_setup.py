"""Owns the setup of a job under Slurm: lines of shell before it, whose failure is the failure of the job."""

from __future__ import annotations

import pytest

from tests.slurm.drivers import GATHERED, WAIT_S, Driver, eventually
from tests.slurm.test_pilots import PILOT

ONE = """
with experiment(HERE / "ws", "x"):
    Note.C(name="n").submit()
"""
SIX = (
    GATHERED
    + """
with experiment(HERE / "ws", "x"):
    for i in range(6):
        Note.C(name=f"n{i}").submit()
"""
)


def setup(driver: Driver, text: str, more: str = "") -> None:
    """Writes the lines of shell that run before each job into the settings."""
    (driver.directory / "tenuto.toml").write_text(f"[slurm]\nsetup = '''\n{text}\n'''\n{more}")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("module load cuda/12", "setup: module: command not found (exit code 127)"),
        ("source /nowhere/conda.sh", "setup: /nowhere/conda.sh: No such file or directory (exit code 1)"),
        ("echo first\nfalse\necho second", "setup: first (exit code 1)"),
        ("true | false", "setup: it ended before the job began (exit code 1)"),
        ("echo no licence >&2; exit 3", "setup: no licence (exit code 3)"),
        ("echo bye; exit 0", "setup: it ended before the job began (exit code 0)"),
        ("kill -KILL $$", "setup: it was killed before the job began"),
        ("echo asks; kill -SEGV $$", "setup: it was killed before the job began, after it said: asks"),
        ("sh -c 'kill -KILL $$'", "setup: "),
        ('echo "never closed', "setup: "),
        ("if true; then", "setup: "),
    ],
)
def test_a_setup_that_fails_fails_the_job(driver: Driver, lines: str, message: str) -> None:
    setup(driver, lines)
    said = driver.run(ONE, code=1)
    (job,) = driver.jobs()
    assert (job["state"], job["reason"], job["attempt"]) == ("error", "failed", 1)
    assert job["message"].startswith(message)
    assert message in said
    assert driver.ledger() == []
    assert len(driver.calls("sbatch")) == 1
    eventually(lambda: driver.in_state("FAILED"), "Slurm's own list")


IMPATIENT = """
from tenuto.launchers import observation

observation.MARKER_PATIENCE_S = 5.0
"""
"""Has a driver wait for a late marker no longer than that."""


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("exec false", "setup: it ended with exit code 1 before the job began"),
        (
            "trap 'echo bye' EXIT; exit 4",
            "setup: it ended with exit code 4 before the job began, after it said: bye",
        ),
    ],
)
def test_a_setup_that_leaves_its_shell_fails_the_job(driver: Driver, lines: str, message: str) -> None:
    setup(driver, lines)
    driver.run(IMPATIENT + ONE, code=1)
    (job,) = driver.jobs()
    assert (job["state"], job["reason"], job["message"]) == ("error", "failed", message)
    assert driver.ledger() == []


def test_what_a_setup_said_is_in_the_log_of_the_job(driver: Driver) -> None:
    setup(driver, "echo tried this\nmodule load cuda/12")
    driver.run(ONE, code=1)
    (job,) = driver.jobs()
    said = driver.tenuto("logs", job["id"], "--err")
    assert "tried this" in said
    assert "module: command not found" in said


@pytest.mark.parametrize(
    "lines",
    [
        "module load cuda/12",
        "[ -e /nowhere ] && false\nmodule load cuda/12",
        "false || module load cuda/12",
        "set +e\nfalse\nmodule load cuda/12",
        "exec 2>/dev/null\nmodule load cuda/12",
    ],
)
def test_a_setup_calls_the_functions_that_bash_exports(driver: Driver, lines: str) -> None:
    setup(driver, lines)
    driver.run(
        """
with experiment(HERE / "ws", "x"):
    note(Loaded.C().submit().job.result())
""",
        classes="""
class Loaded(Task):
    def execute(self):
        return os.environ["LOADED"]
""",
        **{"BASH_FUNC_module%%": '() { export LOADED="$*"; }'},
    )
    assert driver.ledger() == ["load cuda/12"]


def test_a_login_shell_reads_the_profile(driver: Driver) -> None:
    (driver.directory / ".bash_profile").write_text("export LOADED=by_profile\n")
    setup(driver, '[ "$LOADED" = by_profile ]', "login_shell = true\n")
    driver.run(ONE, HOME=str(driver.directory))
    assert driver.began() == ["n"]


def test_a_setup_that_fails_in_some_tasks_fails_their_jobs_alone(driver: Driver) -> None:
    setup(driver, '[ "$SLURM_ARRAY_TASK_ID" != 2 ] || { echo no scratch here; exit 4; }')
    driver.run(SIX, code=1, TENUTO_SLURM__ARRAY_SIZE="6", TENUTO_SLURM__REUSE_S="0")
    failed = [job for job in driver.jobs() if job["state"] == "error"]
    assert [job["message"] for job in failed] == ["setup: no scratch here (exit code 4)"]
    assert len(driver.began()) == 5


def test_a_job_whose_own_setup_failed_runs_once_or_fails_where_tasks_take_further_orders(
    driver: Driver,
) -> None:
    setup(driver, '[ "$SLURM_ARRAY_TASK_ID" = 0 ]')
    process = driver.start(driver.script(SIX), TENUTO_SLURM__ARRAY_SIZE="6", TENUTO_SLURM__REUSE_S="60")
    process.communicate(timeout=WAIT_S)
    jobs = driver.jobs()
    done = [job for job in jobs if job["state"] == "done"]
    assert len(driver.began()) == len(set(driver.began())) == len(done) >= 1
    assert {job["message"] for job in jobs if job not in done} <= {
        "setup: it ended before the job began (exit code 1)"
    }
    assert {job["attempt"] for job in jobs} == {1}


def test_the_driver_fails_a_job_whose_setup_failed_where_there_is_no_python_without_it(
    driver: Driver,
) -> None:
    setup(driver, "module load python/3", 'python = "/nowhere/python"\n')
    driver.run(ONE, code=1)
    (job,) = driver.jobs()
    assert (job["reason"], job["attempt"]) == ("failed", 1)
    assert job["message"] == "setup: module: command not found (exit code 127)"
    assert len(driver.calls("sbatch")) == 1


def test_a_setup_that_fails_without_a_driver_is_shown(driver: Driver) -> None:
    setup(driver, "while ! [ -e " + str(driver.directory / "go") + " ]; do sleep 0.1; done; false")
    process = driver.start(driver.script(ONE))
    eventually(driver.running, "the task")
    driver.kill(process)
    (driver.directory / "go").touch()
    eventually(lambda: driver.jobs()[0]["state"] == "error", "the failure")
    (job,) = driver.jobs()
    assert (job["reason"], job["message"]) == ("failed", "setup: it ended before the job began (exit code 1)")


def test_a_job_that_is_cancelled_in_its_setup_is_cancelled(driver: Driver) -> None:
    setup(driver, "sleep 60")
    process = driver.start(driver.script(ONE))
    driver.slurm.run("scancel", *eventually(driver.running, "the task"))
    assert "CANCELLED" in driver.ended(process, 1)
    (job,) = driver.jobs()
    assert (job["reason"], job["attempt"]) == ("cancelled", 1)


def test_a_pilot_whose_setup_fails_fails_its_jobs(driver: Driver) -> None:
    setup(driver, "module load cuda/12")
    said = driver.run(
        """
with experiment(HERE / "ws", "x"):
    for i in range(30):
        Note.C(name=f"n{i}").submit()
""",
        code=1,
        **PILOT,
    )
    assert "pilots in a row" not in said
    jobs = driver.jobs()
    assert {(job["state"], job["reason"], job["attempt"]) for job in jobs} == {("error", "failed", 1)}
    assert {job["message"] for job in jobs} == {"setup: module: command not found (exit code 127)"}
    assert driver.ledger() == []
    assert len(driver.calls("sbatch")) <= 3


def test_the_test_of_a_launcher_says_that_its_setup_failed(driver: Driver) -> None:
    setup(driver, "module load cuda/12")
    driver.workspace.mkdir()
    told = driver.tenuto("launchers", "test", "slurm", code=1)
    assert "setup: module: command not found" in told
