"""Owns what a researcher sees of Slurm: the same script as on a laptop, in arrays, on other hosts."""

from __future__ import annotations

import json
import shutil
import sys
from itertools import accumulate

from tests.slurm.drivers import GATHERED, Driver, array_size, eventually


def test_jobs_go_to_the_cluster_in_an_array_and_others_follow_them(driver: Driver) -> None:
    driver.run(
        GATHERED
        + """
with experiment(HERE / "ws", "x"):
    notes = [Note.C(name=f"n{i}").submit() for i in range(6)]
    hosts = {note.job.result()[1] for note in notes}
    assert hosts <= {"n1", "n2"}, hosts
    launcher.GATHER_S = launcher.GATHER_MOST_S = 0.1
    After.C(before=notes[0]).submit()
end = time.monotonic() + 30
while list((HERE / "ws" / ".launchers" / "slurm").iterdir()):
    assert time.monotonic() < end, "what is over is cleared away"
    time.sleep(0.05)
""",
        TENUTO_SLURM__ARRAY_SIZE="6",
    )
    assert driver.began() == sorted(["after", *(f"n{i}" for i in range(6))])
    first, second = driver.calls("sbatch")
    assert "--array=0-5" in first
    assert "--array" not in second


def test_arrays_and_the_queue_are_no_larger_than_slurm_and_the_settings_say(driver: Driver) -> None:
    smaller = "s/^(MaxArraySize *= ).*/\\12/"
    driver.shim("scontrol", f'case "$*" in *config*) $REAL "$@" | sed -E "{smaller}"; exit 0;; esac')
    driver.shim("sbatch", 'ls "$HERE"/ws/jobs/*/*/*.done 2>/dev/null | wc -l >> "$HERE/done"')
    driver.close_queue()
    script = driver.script("""
with experiment(HERE / "ws", "x"):
    for i in range(8):
        Note.C(name=f"n{i}").submit()
""")
    process = driver.start(script, TENUTO_SLURM__ARRAY_SIZE="3", TENUTO_SLURM__MAX_JOBS="4")
    eventually(lambda: len(driver.in_state("PENDING")) == 4, "as many jobs as are allowed")
    asked = len(driver.calls("squeue"))
    eventually(lambda: len(driver.calls("squeue")) >= asked + 2, "two more looks of the driver")
    assert len(driver.queue()) == 4, "max_jobs, as Slurm counts"
    driver.open_queue()
    driver.ended(process)
    assert len(driver.began()) == 8
    sizes = [array_size(call) for call in driver.calls("sbatch")]
    assert max(sizes) <= 2, "MaxArraySize"
    done = map(int, (driver.directory / "done").read_text().split())
    unfinished = [submitted - ended for submitted, ended in zip(accumulate(sizes), done, strict=True)]
    assert max(unfinished) <= 4, "max_jobs"


LINGERS = """[slurm]
wrap = "sh -c '\\"$@\\"; while ! test -e {leave}; do sleep 0.05; done' sh"
"""
"""Has the jobs of a driver stay in Slurm's queue after their markers, until a file lets them leave."""
COUNTS = """
there=$({squeue} -h -r -o %A | awk '$1 > {before}' | wc -l)
size=$(echo "$*" | sed -nE 's/.*--array=0-([0-9]+).*/\\1/p')
echo $((there + ${{size:-0}} + 1)) >> "$HERE/counts"
"""
"""An sbatch that notes how many jobs the queue will have with it."""


def test_a_job_counts_until_it_has_left_the_queue(driver: Driver) -> None:
    (driver.directory / "tenuto.toml").write_text(LINGERS.replace("{leave}", f"{driver.directory}/leave"))
    driver.shim("sbatch", COUNTS.format(squeue=shutil.which("squeue"), before=driver.jobs_before))
    process = driver.start(
        driver.script("""
with experiment(HERE / "ws", "x"):
    for i in range(5):
        Note.C(name=f"n{i}").submit()
"""),
        TENUTO_SLURM__MAX_JOBS="2",
    )
    eventually(lambda: len(list(driver.workspace.glob("jobs/*/*/*.done"))) == 2, "two markers")
    asked = len(driver.calls("squeue"))
    eventually(lambda: len(driver.calls("squeue")) >= asked + 4, "four more looks of the driver")
    assert len(driver.began()) == 2, "jobs that have left their markers are still in the queue"
    (driver.directory / "leave").touch()
    driver.ended(process)
    assert len(driver.began()) == 5
    counts = list(map(int, (driver.directory / "counts").read_text().split()))
    assert max(counts) == 2, "max_jobs, as Slurm counts at each sbatch"


def test_a_queue_that_answers_nothing_has_no_room_for_more(driver: Driver) -> None:
    (driver.directory / "tenuto.toml").write_text(LINGERS.replace("{leave}", f"{driver.directory}/leave"))
    driver.shim("squeue", "exit 0")
    script = driver.script("""
with experiment(HERE / "ws", "x"):
    for i in range(4):
        Note.C(name=f"n{i}").submit()
""")
    process = driver.start(script, TENUTO_SLURM__MAX_JOBS="2")

    def asked() -> int:
        """How often the controller was asked for whole submissions, by their ids."""
        ids = [call.removeprefix("scontrol -o show job ") for call in driver.calls("scontrol")]
        return sum(id_.isdecimal() for id_ in ids)

    eventually(lambda: asked() >= 4, "two looks for room")
    assert len(driver.began()) == sum(map(array_size, driver.calls("sbatch"))) == 2, "max_jobs"
    (driver.directory / "leave").touch()
    driver.ended(process)
    assert len(driver.began()) == 4


def test_a_refused_job_is_rejected_with_slurms_words(driver: Driver) -> None:
    said = driver.run(
        """
with experiment(HERE / "ws", "x"):
    Note.C(name="n").submit(launcher=SlurmLauncher(SlurmOptions(partition="nowhere")))
""",
        code=1,
    )
    assert "REJECTED" in said
    assert "invalid partition specified: nowhere" in said
    assert driver.ledger() == []


def test_a_full_queue_is_tried_in_halves(driver: Driver) -> None:
    policy = "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy"
    driver.shim("sbatch", f'case "$*" in *--array=0-[2-9]*) echo "{policy}" >&2; exit 1;; esac')
    driver.run(
        GATHERED
        + """
with experiment(HERE / "ws", "x"):
    for i in range(5):
        Note.C(name=f"n{i}").submit()
""",
        TENUTO_SLURM__ARRAY_SIZE="5",
    )
    assert driver.began() == [f"n{i}" for i in range(5)]
    assert [array_size(call) for call in driver.calls("sbatch")] == [5, 2, 3, 1, 2]


def test_a_requirement_is_what_slurm_is_asked_for(driver: Driver) -> None:
    driver.run(
        """
with experiment(HERE / "ws", "x"):
    wide = Wide.C(name="wide").submit()
    narrow = Note.C(name="narrow").submit(requires="cpu(cores=1)")
    try:
        Note.C(name="gpu").submit(requires="cuda(mem=4G)")
    except LauncherNotFound as error:
        assert "choose a partition for it in launchers.py" in str(error), error
    else:
        raise AssertionError
""",
        classes="""
class Wide(Note):
    __requires__ = "duration=10m & cpu(cores=2, mem=200M)"
""",
    )
    wide = [call for call in driver.calls("sbatch") if "--cpus-per-task=2" in call]
    assert len(wide) == 1
    assert "--time=11" in wide[0], "ten minutes, and what it takes to stop"
    assert "--mem=200M" in wide[0]


def test_nothing_of_a_path_or_a_setting_is_read_by_a_shell(driver: Driver) -> None:
    strange = "a 'b\" %j $HOME `x` ; c"
    long = "L" * 193  # with the name of its module 200 bytes
    driver.run(
        f"""
with experiment(HERE / {strange!r}, "x"):
    note = {long}.C(name="n").submit()
    assert note.job.result()[0] == "n"
""",
        classes=f"class {long}(Note):\n    pass\n",
    )
    assert driver.began() == ["n"]
    (call,) = driver.calls("sbatch")
    assert f"--job-name={'L' * 40}-" in call


def test_the_environment_of_a_job_is_the_drivers(driver: Driver) -> None:
    driver.script("pass")
    (driver.directory / "tenuto.toml").write_text(
        '[slurm]\nsetup = """export FROM_SETUP=\'a b\'"""\nwrap = "env FROM_WRAP=1"\n'
        f'python = "{driver.directory}/other python"\n'
    )
    other = driver.directory / "other python"
    other.write_text(f'#!/bin/sh\nFROM_PYTHON=1 exec {sys.executable} "$@"\n')
    other.chmod(0o755)
    driver.run(
        """
with experiment(HERE / "ws", "x"):
    seen = Env.C().submit().job.result()
    (HERE / "seen").write_text(json.dumps(seen))
""",
        classes="""
class Env(Task):
    def execute(self):
        ours = ("FROM_SETUP", "FROM_WRAP", "FROM_PYTHON", "MINE")
        names = (*ours, "SLURM_RESTART_COUNT", "SLURM_CONF", "SLURM_JOB_ID")
        own, runner = (Path(f"/proc/{pid}/cmdline").read_bytes() for pid in ("self", os.getppid()))
        return {name: os.environ.get(name) for name in names} | {"is_forked": own == runner}
""",
        MINE="mine",
        SLURM_RESTART_COUNT="7",
    )
    seen = json.loads((driver.directory / "seen").read_text())
    assert seen["FROM_SETUP"] == "a b"
    assert seen["FROM_WRAP"] == "1"
    assert seen["FROM_PYTHON"] == "1"
    assert seen["MINE"] == "mine"
    assert seen["SLURM_RESTART_COUNT"] is None
    assert seen["SLURM_CONF"]
    assert seen["SLURM_JOB_ID"]
    assert seen["is_forked"], "one interpreter for runner and payload: Slurm passes no descriptors on"


def test_a_resumable_task_goes_on_after_its_time_limit(driver: Driver) -> None:
    driver.run(
        """
with experiment(HERE / "ws", "x"):
    assert Long.C().submit(requires="duration=2m").job.result() == 2
""",
        classes="""
class Long(ResumableTask):
    def execute(self):
        note(f"attempt {self.job_attempt}")
        if self.job_attempt == 1:
            assert 90 < self.remaining_time() <= 120, "its grace, and half a minute, are asked on top"
            raise GracefulTimeout
        return self.job_attempt
""",
        TENUTO_GRACE_S="1",
    )
    assert driver.began() == ["attempt", "attempt"]
    assert all("--time=3" in call for call in driver.calls("sbatch"))


def test_a_job_that_an_operator_cancels_is_cancelled(driver: Driver) -> None:
    process = driver.start(
        driver.script("""
with experiment(HERE / "ws", "x"):
    Hold.C(name="running").submit()
    Hold.C(name="pending").submit(launcher=SlurmLauncher(SlurmOptions(extra=("--hold",))))
""")
    )
    eventually(driver.ledger, "the job to run")
    wanted = eventually(lambda: driver.in_state("PENDING"), "the job to wait") + driver.running()
    driver.slurm.run("scancel", *wanted)
    assert "CANCELLED" in driver.ended(process, 1)
    assert [job["reason"] for job in driver.jobs()] == ["cancelled"] * 2
    assert driver.began() == ["running"]
    assert len(driver.calls("sbatch")) == 2
