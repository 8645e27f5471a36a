"""`tenuto adopt`: done jobs of a workspace of experimaestro become jobs of Tenuto, and are reused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from tests.parts.fork_server import ran

PROJECT = """
from enum import Enum, IntEnum
from pathlib import Path
from typing import Dict, List, Optional
from experimaestro import Config, Constant, LightweightTask, Meta, Param, PathGenerator, Task, field
from experimaestro import ResumableTask, deprecate, param_group, partial, setmeta

class Colour(Enum):
    RED = "r"
    BLUE = "b"

class Level(IntEnum):
    LOW = 1
    HIGH = 2

class Data(Config):
    name: Param[str]
    levels: Param[List[Level]]
    n: Param[int] = field(default=3)

class Model(Config):
    path: Meta[Path]
    size: Param[int]

class Checkpoint(Config):
    data: Param[Data]
    path: Param[Path]

class Train(Task):
    __xpmid__ = "my.train"
    data: Param[Data]
    lr: Param[float]
    layers: Param[List[int]] = field(default_factory=lambda: [1, 2])
    options: Param[Dict[str, int]]
    colour: Param[Colour] = field(default=Colour.RED)
    perhaps: Param[Optional[str]] = None
    version: Constant[int] = 2
    model: Meta[Path] = field(default_factory=PathGenerator("model.pt"))

    def task_outputs(self, dep):
        return dep(Checkpoint.C(data=self.data, path=self.model))

    def execute(self):
        self.model.write_text(str(self.lr))
        Path("best").mkdir()
        Path("best", "absolute").symlink_to(self.model.absolute())
        Path("best", "relative").symlink_to("../model.pt")
        print("trained")

class Evaluate(Task):
    checkpoint: Param[Checkpoint]
    model: Param[Model]

    def execute(self):
        Path("score.txt").write_text("score " + self.checkpoint.path.read_text())

class Warm(LightweightTask):
    n: Param[int]

    def execute(self):
        Path("warmed.txt").write_text(str(self.n))

class Quiet(Task):
    is_quiet: Param[bool] = field(ignore_default=False)

    def execute(self):
        print("quiet" if self.is_quiet else "loud")

class Network(Config):
    data: Param[Data]

class Learn(Task):
    # gives out a config that it was given
    network: Param[Network]

    def task_outputs(self, dep):
        return dep(self.network)

    def execute(self):
        pass

class Use(Task):
    network: Param[Network]

    def execute(self):
        pass

class Split(Task):
    # gives out two configs of one class, and one inside of another
    n: Param[int]
    part: Meta[Path] = field(default_factory=PathGenerator(lambda context, config: f"part-{config.n}"))

    def task_outputs(self, dep):
        first, second = (Data.C(name=name, levels=[]) for name in "ab")
        return dep(first), dep(second), dep(Network.C(data=dep(Data.C(name="c", levels=[]))))

    def execute(self):
        self.part.write_text("part")

class Read(Task):
    data: Param[Data]
    file: Param[Path]

    def execute(self):
        pass

many = param_group("many")

class Shared(Task):
    common = partial(exclude_groups=[many])
    n: Param[int]
    many: Param[int] = field(groups=[many])
    folder: Meta[Path] = field(default_factory=PathGenerator("state", partial=common))

    def execute(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "kept").write_text("shared")

class New(Task):
    n: Param[int]

    def execute(self):
        pass

@deprecate
class Former(New):
    def execute(self):
        pass

class Step(Config):
    number: Param[int]

class Validation(Config):
    every: Param[int]

    def saved(self, dep, *, number):
        return dep(Step.C(number=number))

class Epochs(ResumableTask):
    # hands outputs to its watchers while it runs
    validation: Param[Validation]

    def execute(self):
        for number in range(2):
            self.validation.register_task_output(self.validation.saved, number=number)

class Judge(Task):
    step: Param[Step]

    def execute(self):
        pass

class After(Task):
    # uses jobs that are removed at the end of their run
    new: Param[New]
    network: Param[Network]

    def execute(self):
        pass

class Bad(Task):
    x: Param[int]

    def execute(self):
        raise RuntimeError("no")

class AfterBad(Task):
    bad: Param[Bad]

    def execute(self):
        pass
"""
JOBS = 18
"""That script's jobs which end well."""
SCRIPT = """
import sys
{first}
from experimaestro import experiment
from experimaestro import TransientMode, setmeta
from pathlib import Path
from project import After, New
from project import AfterBad, Bad, Data, Evaluate, Level, Model, Quiet, Train, Warm
from project import Epochs, Former, Judge, Learn, Network, Read, Shared, Split, Use, Validation
if __name__ == "__main__":
    try:
        with experiment(sys.argv[1], "sweep") as xp:
            for lr in (0.1, 1.0):
                train = Train.C(data=Data.C(name="a", levels=[Level.HIGH]), lr=lr, options={{"a": 1}})
                train.tag("lr", lr)
                model = setmeta(Model.C(path=Path("/old"), size=1), True)
                Evaluate.C(checkpoint=train.submit(), model=model).submit()
            Quiet.C().submit(init_tasks=[Warm.C(n=1)])
            Use.C(network=Learn.C(network=Network.C(data=Data.C(name="u", levels=[]))).submit()).submit()
            split = Split.C(n=2)
            for data in (lambda one, two, three: (one, two, three.data))(*split.submit()):
                Read.C(data=data, file=split.part).submit()
            for many in (1, 2):
                Shared.C(n=1, many=many).submit()
            Former.C(n=1).submit()
            epochs = Epochs.C(validation=Validation.C(every=1))
            epochs.watch_output(epochs.validation.saved, lambda step: Judge.C(step=step).submit())
            epochs.submit()
            network = Network.C(data=Data.C(name="t", levels=[]))
            removed = [
                New.C(n=9).submit(transient=TransientMode.REMOVE),
                Learn.C(network=network).submit(transient=TransientMode.REMOVE),
            ]
            After.C(new=removed[0], network=removed[1]).submit()
            {bad}
    except BaseException as error:
        print("ended", type(error).__name__, error)
"""


def run(*command: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "PYTHONPATH": str(cwd), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    return ran(command, cwd, variables, 300)


def adopt(cwd: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    ended = run(sys.executable, "-m", "tenuto", "adopt", *arguments, "--json", cwd=cwd)
    assert ended.stdout, ended.stderr
    assert "to run" not in ended.stderr, "a job that is taken over is not run"
    return ended.returncode, json.loads(ended.stdout)


def contents(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(root)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


@pytest.mark.slow
@pytest.mark.watchdog(600)
def test_a_workspace_that_the_real_package_wrote_is_taken_over_and_reused(tmp_path: Path) -> None:
    environment = tmp_path / "theirs"
    venv.create(environment)
    python = str(environment / "bin" / "python")
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile")
    installed = run(*pip, "experimaestro>=2,<3", cwd=tmp_path)
    if installed.returncode and not os.environ.get("CI"):
        pytest.skip(f"experimaestro cannot be installed here: {installed.stderr[-300:]}")
    assert installed.returncode == 0, installed.stderr
    (tmp_path / "project.py").write_text(PROJECT)
    (tmp_path / "sweep.py").write_text(
        SCRIPT.format(first="", bad="AfterBad.C(bad=Bad.C(x=1).submit()).submit()")
    )
    theirs = run(python, "sweep.py", str(tmp_path / "old"), cwd=tmp_path, HOME=str(tmp_path))
    before = contents(tmp_path / "old")
    assert sum(name.endswith(".done") for name in before) == JOBS, theirs.stderr

    code, planned = adopt(tmp_path, "old", "-w", "new", "--dry-run")
    assert (code, len(planned["jobs"]), (tmp_path / "new").exists()) == (1, JOBS + 2, False)

    code, taken = adopt(tmp_path, "old", "-w", "new")
    left = [job for job in taken["jobs"] if job["job"] is None]
    assert [(job["task"], job["reason"]) for job in left] == [
        ("project.afterbad", "it is not done there"),
        ("project.bad", "it failed there"),
    ]
    assert [job["job"] for job in taken["jobs"]] == [job["job"] for job in planned["jobs"]]
    assert contents(tmp_path / "old") == before, "the old workspace was changed"

    for more in ((), ("--dry-run",)):
        again = adopt(tmp_path, "old", "-w", "new", *more)[1]
        assert {job["reason"] for job in again["jobs"] if job["job"]} == {"there already"}

    install = "import tenuto.compat.experimaestro; tenuto.compat.experimaestro.install()"
    (tmp_path / "ours.py").write_text(SCRIPT.format(first=install, bad="print(xp.results())"))
    ours = run(sys.executable, "ours.py", "new", cwd=tmp_path)
    assert "ended" not in ours.stdout, ours.stdout
    markers = [json.loads(path.read_bytes()) for path in (tmp_path / "new" / "jobs").rglob("*.done")]
    launches = [marker["launch"] for marker in markers]
    assert [launch["launcher"] for launch in launches] == ["adopted"] * JOBS, "a job was run, not found"
    shown = run(sys.executable, "-m", "tenuto", "jobs", "-w", "new", "--json", cwd=tmp_path)
    rates = [row["tags"]["lr"] for row in json.loads(shown.stdout) if row["tags"]]
    assert sorted(rates) == [0.1, 0.1, 1.0, 1.0], shown.stdout
    scores = sorted(path.read_text() for path in (tmp_path / "new").rglob("score.txt"))
    assert scores == ["score 0.1", "score 1.0"]
    kept = [path.read_text() for path in (tmp_path / "new" / "partials").rglob("kept")]
    assert kept == ["shared"], "the directory of a partial was left behind"
    assert {path.read_text() for path in (tmp_path / "new" / "jobs").rglob("train.out")} == {"trained\n"}
    links = [path for path in (tmp_path / "new" / "jobs").rglob("best/*") if path.is_symlink()]
    assert {str(path.readlink()) for path in links} == {"../model.pt"}, (
        "a link leads back to the old workspace"
    )


def old_workspace(root: Path, *jobs: tuple[str, dict[str, Any]]) -> Path:
    """A workspace of the same shape with jobs of one object each: their class and fields."""
    for number, (cls, fields) in enumerate(jobs):
        task = f"project.{cls.lower()}"
        path = root / "jobs" / task / f"{number:064x}"
        path.mkdir(parents=True)
        written = {
            "id": 1,
            "module": "project",
            "type": cls,
            "typename": f"project.{cls}",
            "file": "project.py",
        }
        written |= {"identifier": path.name, "task": 1, "fields": {**FIXED, **fields}}
        (path / "params.json").write_text(json.dumps({"version": 3, "objects": [written]}))
        (path / f"{cls.lower()}.done").touch()
        (path / "kept.txt").write_text("kept")
    return root


GIVES_OUT = """
from experimaestro import Config, Param, Task

class Given(Config):
    y: Param[int]

class Give(Task):
    x: Param[int]

    def task_outputs(self, dep):
        return dep(Given.C(y=self.x + 1))

    def execute(self):
        pass

class Take(Task):
    given: Param[Given]

    def execute(self):
        pass
"""
FIXED = {"late": 1, "version": 2}
SMALL = """
from experimaestro import Constant, Param, Task, field

class Job(Task):
    x: Param[int]
    late: Param[int] = field(default=1)
    quiet: Param[int] = field(ignore_default=1)
    version: Constant[int] = 2

    def execute(self):
        raise AssertionError("it was run")

class Plain:
    pass
"""


@pytest.mark.parametrize(
    ("cls", "fields", "extra", "reason"),
    [
        ("Gone", {}, {}, "no class Gone is declared in module project"),
        ("Plain", {}, {}, "project.Plain is no config"),
        ("Job", {"x": 1, "y": 2}, {}, "Job declares no y any more"),
        ("Job", {"x": 1}, {"fields": {"x": 1, "version": 2}}, "Job.late was declared later"),
        ("Job", {"x": "text"}, {}, "int"),
        ("Job", {"x": 1, "version": 1}, {}, "the constant Job.version was 1, and is 2 now"),
        ("Job", {"x": {"type": "strange", "value": 1}}, {}, "a value of the kind 'strange'"),
        ("Job", {"x": {"type": "python", "value": 7}}, {}, "names an object that is not in it"),
        ("Job", {"x": 1}, {"init-tasks": [3]}, "names an object that is not in it"),
        ("Job", {"x": 1}, {"copy-dependencies": []}, "has copy-dependencies, which Tenuto cannot read"),
    ],
)
def test_a_job_that_cannot_be_taken_over_says_why(
    tmp_path: Path, cls: str, fields: dict[str, Any], extra: dict[str, Any], reason: str
) -> None:
    (tmp_path / "project.py").write_text(SMALL)
    old_workspace(tmp_path / "old", (cls, fields), ("Job", {"x": 5}))
    if extra:
        path = tmp_path / "old" / "jobs" / f"project.{cls.lower()}" / f"{0:064x}" / "params.json"
        document = json.loads(path.read_text())
        document["objects"][0] |= extra
        path.write_text(json.dumps(document))
    code, said = adopt(tmp_path, "old", "-w", "new")
    left = [job["reason"] for job in said["jobs"] if job["job"] is None]
    assert code == 1
    assert len(left) == 1
    assert reason in left[0]
    assert len([job for job in said["jobs"] if job["job"]]) == 1, "the other job is taken over"


def test_a_job_that_is_not_done_says_how_far_it_came(tmp_path: Path) -> None:
    (tmp_path / "project.py").write_text(SMALL)
    old = old_workspace(tmp_path / "old", *(("Job", {"x": x}) for x in range(3)))
    for number, left in enumerate(([], ["job.pid"], ["job.pid", "job.failed"])):
        path = old / "jobs" / "project.job" / f"{number:064x}"
        (path / "job.done").unlink()
        for name in left:
            (path / name).touch()
    code, said = adopt(tmp_path, "old", "-w", "new")
    assert (code, [job["reason"] for job in said["jobs"]]) == (
        1,
        ["it is not done there", "it runs there, or was killed", "it failed there"],
    )


def test_a_job_that_uses_itself_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "project.py").write_text(SMALL)
    old = old_workspace(tmp_path / "old", ("Job", {"x": 1}), ("Job", {"x": 2}))
    for path, number in zip(sorted(old.rglob("params.json")), (1, 0), strict=True):
        document = json.loads(path.read_text())
        other = {**document["objects"][0], "id": 2, "task": 2, "identifier": f"{number:064x}"}
        document["objects"].insert(0, other)
        document["objects"][1]["fields"]["x"] = {"type": "python", "value": 2}
        path.write_text(json.dumps(document))
    code, said = adopt(tmp_path, "old", "-w", "new")
    assert code == 1
    assert all(job["reason"].endswith("it uses itself") for job in said["jobs"]), said


def test_a_job_whose_task_gives_out_something_else_now_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "project.py").write_text(GIVES_OUT)
    old = tmp_path / "old"
    fields = [{"x": 1}, {"given": {"type": "python", "value": 2}}]
    old_workspace(old, ("Give", fields[0]), ("Take", fields[1]))
    for path in old.rglob("params.json"):
        document = json.loads(path.read_text())
        (written,) = document["objects"]
        written["fields"] = {"x": 1} if "give/" in str(path) else fields[1]
        if "take/" in str(path):
            maker = {**written, "id": 3, "task": 3, "type": "Give", "identifier": f"{0:064x}"}
            given = {**written, "id": 2, "task": 3, "type": "Given", "fields": {"y": 5}}
            given["typename"] = "project.Given"
            document["objects"] = [{**maker, "fields": {"x": 1}}, given, written]
        path.write_text(json.dumps(document))
    said = adopt(tmp_path, "old", "-w", "new")[1]
    left = [job["reason"] for job in said["jobs"] if job["job"] is None]
    assert len(left) == 1
    assert "it uses a project.Given that" in left[0], left


@pytest.mark.parametrize("place", ["old", "old/inside", "./old/jobs"])
def test_a_workspace_is_not_taken_over_into_itself(tmp_path: Path, place: str) -> None:
    (tmp_path / "project.py").write_text(SMALL)
    old = old_workspace(tmp_path / "old", ("Job", {"x": 1}))
    before = contents(old)
    ended = run(sys.executable, "-m", "tenuto", "adopt", "old", "-w", place, cwd=tmp_path)
    assert ended.returncode == 2
    assert "where nothing is changed: give another place with -w" in ended.stderr
    assert contents(old) == before


def test_a_workspace_of_tenuto_is_named_as_one(tmp_path: Path) -> None:
    (tmp_path / "project.py").write_text(SMALL)
    old_workspace(tmp_path / "old", ("Job", {"x": 1}))
    assert adopt(tmp_path, "old", "-w", "new")[0] == 0
    ended = run(sys.executable, "-m", "tenuto", "adopt", "new", cwd=tmp_path)
    assert ended.returncode == 3
    assert "new is a workspace of Tenuto" in ended.stderr


def test_a_job_with_damaged_parameters_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "project.py").write_text(SMALL)
    old = old_workspace(tmp_path / "old", *[("Job", {"x": x}) for x in range(4)])
    whole, first, second, third = sorted(old.rglob("params.json"))
    first.unlink()
    second.write_text('{"objects": [{"id": 1}]}')
    third.write_text("[")
    reasons = [job["reason"] for job in adopt(tmp_path, "old", "-w", "new")[1]["jobs"] if job["reason"]]
    assert reasons[:2] == ["it has no params.json", "its params.json has an object without 'module'"]
    assert reasons[2].startswith("its params.json cannot be read")
    assert whole.is_file()


def test_what_a_module_prints_is_no_part_of_the_answer(tmp_path: Path) -> None:
    (tmp_path / "project.py").write_text(f"print('loading')\n{SMALL}")
    old_workspace(tmp_path / "old", ("Job", {"x": 1}))
    assert adopt(tmp_path, "old", "-w", "new")[0] == 0


def test_a_module_that_ends_the_program_keeps_only_its_own_jobs_back(tmp_path: Path) -> None:
    (tmp_path / "project.py").write_text(SMALL)
    (tmp_path / "other.py").write_text(f"raise SystemExit(2)\n{SMALL}")
    old = old_workspace(tmp_path / "old", ("Job", {"x": 1}), ("Job", {"x": 2}))
    path = next(old.rglob("params.json"))
    path.write_text(path.read_text().replace('"module": "project"', '"module": "other"'))
    code, said = adopt(tmp_path, "old", "-w", "new")
    assert (code, [job["reason"] for job in said["jobs"] if job["job"]]) == (1, [None])
    (left,) = (job["reason"] for job in said["jobs"] if not job["job"])
    assert left == "its module ends the program when it is imported: SystemExit(2)"


@pytest.mark.parametrize("mode", [(), ("--dry-run",)])
def test_a_script_that_opens_its_experiment_as_it_is_imported_changes_nothing(
    tmp_path: Path, mode: tuple[str, ...]
) -> None:
    opens = 'from experimaestro import experiment\nwith experiment("old", "x"):\n    Job.C(x=3).submit()\n'
    (tmp_path / "project.py").write_text(f"{SMALL}\n{opens}")
    old = old_workspace(tmp_path / "old", ("Job", {"x": 1}))
    before = contents(old)
    code, said = adopt(tmp_path, "old", "-w", "new", *mode)
    assert (code, len(said["jobs"])) == (1, 1)
    assert 'put it under `if __name__ == "__main__":`' in said["jobs"][0]["reason"]
    assert contents(old) == before


def test_a_job_says_where_it_came_from_and_nothing_of_where_it_did_not_run(tmp_path: Path) -> None:
    (tmp_path / "project.py").write_text(SMALL)
    old = old_workspace(tmp_path / "old", ("Job", {"x": 1}))
    adopt(tmp_path, "old", "-w", "new")
    told = json.loads(
        run(sys.executable, "-m", "tenuto", "why", "Job", "-w", "new", "--json", cwd=tmp_path).stdout
    )
    assert told["provenance"]["adopted"] == str(next(old.glob("jobs/*/*")))
    assert not told["provenance"].keys() & {"python", "packages", "commit"}
    words = run(sys.executable, "-m", "tenuto", "why", "Job", "-w", "new", cwd=tmp_path).stdout
    assert f"taken over from {old}" in words


def test_a_wrong_name_is_refused_without_a_place_in_a_library(tmp_path: Path) -> None:
    (tmp_path / "project.py").write_text(SMALL)
    old_workspace(tmp_path / "old", ("Job", {"x": 1}))
    ended = run(sys.executable, "-m", "tenuto", "adopt", "old", "--name", "a#b", cwd=tmp_path)
    assert (ended.returncode, "core.py" in ended.stderr) == (2, False), ended.stderr


def test_files_are_copied_or_linked(tmp_path: Path) -> None:
    (tmp_path / "project.py").write_text(SMALL)
    old = old_workspace(tmp_path / "old", ("Job", {"x": 1}))
    ours = next((old / "jobs").rglob("kept.txt"))
    assert adopt(tmp_path, "old", "-w", "copied")[0] == 0
    assert adopt(tmp_path, "old", "-w", "linked", "--link")[0] == 0
    copied, linked = (next((tmp_path / name / "jobs").rglob("kept.txt")) for name in ("copied", "linked"))
    assert not copied.samefile(ours)
    assert linked.samefile(ours)


@pytest.mark.parametrize(("place", "code"), [("nowhere", 2), ("empty", 3)])
def test_a_folder_that_is_no_such_workspace_is_refused(tmp_path: Path, place: str, code: int) -> None:
    (tmp_path / "empty").mkdir()
    ended = run(sys.executable, "-m", "tenuto", "adopt", place, cwd=tmp_path)
    assert ended.returncode == code
    assert not (tmp_path / "workspace").exists()


def test_names_without_a_counterpart_are_refused_by_name(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    install = "from tenuto.compat.experimaestro import install; install()\n"
    for line, said in [
        ("from experimaestro import ObjectStore", "Tenuto has no 'ObjectStore' of experimaestro"),
        ("import experimaestro.mkdocs", "Tenuto has no module experimaestro.mkdocs"),
    ]:
        script.write_text(install + line)
        ended = run(sys.executable, "script.py", cwd=tmp_path)
        assert ended.returncode == 1
        assert said in ended.stderr, ended.stderr
    script.write_text(
        install
        + "from experimaestro import *\nfrom experimaestro.launcherfinder import find_launcher\n"
        + "from experimaestro.launchers.slurm import SlurmLauncher, SlurmOptions\nimport tenuto\n"
        + "assert find_launcher is tenuto.find_launcher\n"
        + "assert SlurmOptions(time='1:00:00') == tenuto.SlurmOptions(time_s=3600.0)\n"
        + "from experimaestro import DependentMarker, ExperimentInfo, Launcher, OptionalDataPath\n"
        + "from experimaestro.scheduler.jobs import Job, JobState\n"
    )
    ended = run(sys.executable, "script.py", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr


NAMES = """
from tenuto.compat.experimaestro import install; install()
from importlib import import_module
PLACES = {
    "core.objects": "Config Task WatchedOutput",
    "exceptions": "GracefulTimeout",
    "scheduler": "Job JobDependency JobState Listener Scheduler TransientMode experiment",
    "scheduler.base": "Listener Scheduler",
    "scheduler.done_handler": "DoneHandlerWorker",
    "scheduler.dynamic_outputs": "TaskOutputsWorker",
    "scheduler.experiment": "GracefulExperimentExit StateListener experiment",
    "scheduler.interfaces": "BaseJob JobFailureStatus JobState",
    "scheduler.jobs": "Job JobDependency TransientMode",
    "scheduler.state_provider": "CarbonMetricsData StateProvider",
    "scheduler.state_status": "CarbonMetricsEvent EventReader EventWriter JobProgressEvent "
    "JobStateChangedEvent JobSubmittedEvent ProcessStartedEvent ProcessStateEvent RunCompletedEvent "
    "ServiceAddedEvent ServiceStateChangedEvent",
    "scheduler.workspace": "Workspace",
    "xpmutils": "DirectoryContext",
}
for module, names in PLACES.items():
    for name in names.split():
        found = getattr(import_module(f"experimaestro.{module}"), name)
        assert found.__name__ == name or name == "DirectoryContext", (module, name, found)

import experimaestro, experimaestro.scheduler, tenuto
from experimaestro import scheduler, settings
from experimaestro.scheduler import jobs
from experimaestro.experiments.configuration import ConfigurationBase
from experimaestro.experiments import configuration
assert jobs.Job is experimaestro.Job is experimaestro.scheduler.jobs.Job is tenuto.Job
assert scheduler is experimaestro.scheduler and scheduler.__name__ == "experimaestro.scheduler"
assert settings.__name__ == "experimaestro.settings" and not hasattr(experimaestro, "_private")

@configuration
class Bare(ConfigurationBase):
    names: list = ["a"]

@configuration()
class Called:
    bare: Bare = Bare(id="inner")

assert Bare(id="1").names == ["a"] and Bare(id="1").names is not Bare(id="2").names
assert Called().bare.id == "inner"
"""


def test_every_place_that_their_documentation_names_has_its_names(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(NAMES)
    ended = run(sys.executable, "-W", "error", "script.py", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr


def test_the_real_package_imported_before_is_named(tmp_path: Path) -> None:
    (tmp_path / "experimaestro.py").write_text("")
    (tmp_path / "script.py").write_text(
        "import experimaestro\nfrom tenuto.compat.experimaestro import install\ninstall()\n"
    )
    ended = run(sys.executable, "script.py", cwd=tmp_path)
    assert "experimaestro was imported before" in ended.stderr


FUNCTION = """
from dataclasses import field
from typing import Literal, Optional
from experimaestro import Param, Task
from experimaestro.experiments import ConfigurationBase, ExperimentHelper, configuration

class Train(Task):
    lr: Param[float]
    depth: Param[int]

    def execute(self):
        return self.lr * self.depth

@configuration
class Inner:
    depth: int = 1
    names: list = field(default_factory=list)

@configuration
class Configuration(ConfigurationBase):
    lr: float
    inner: Inner = Inner()
    lrs: list[float] = field(default_factory=list)
    perhaps: Optional[int] = None
    kind: Literal["a", "b"] = "a"
    more: list[Inner] = field(default_factory=list)

def run(helper: ExperimentHelper, cfg: Configuration):
    if cfg.title == "broken":
        raise RuntimeError("the user's")
    Train.C(lr=cfg.lr, depth=cfg.inner.depth).tag("lr", cfg.lr).submit()
"""
SHEET = """
id: sweep
file: experiment
title: A sweep
lr: 1
inner: {depth: 3}
"""


def sheet(cwd: Path, *overrides: str, command: str = "run") -> subprocess.CompletedProcess[str]:
    (cwd / "experiment.py").write_text(FUNCTION)
    (cwd / "sweep.yaml").write_text(SHEET)
    given = [part for override in overrides for part in ("-c", override)]
    return run(sys.executable, "-m", "tenuto", command, "sweep.yaml", "-w", "new", "--json", *given, cwd=cwd)


def test_a_yaml_file_of_their_form_calls_its_function(tmp_path: Path) -> None:
    planned = sheet(tmp_path, command="plan")
    assert (planned.returncode, (tmp_path / "new").exists()) == (0, False), planned.stderr
    for overrides in ((), ("lr=0.5", "inner.depth=4"), ()):
        ended = sheet(tmp_path, *overrides)
        assert ended.returncode == 0, ended.stderr
    said = run(sys.executable, "-m", "tenuto", "results", "-w", "new", "--json", "--all", cwd=tmp_path)
    assert sorted(row["result"] for row in json.loads(said.stdout)) == [2.0, 3.0]


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("rate=1", "Configuration has no 'rate': it has id, title"),
        ("inner.deep=1", "Inner has no 'deep': it has depth, names"),
        ("lr=fast", "Configuration.lr expects float, but got 'fast' (str)"),
        ("lrs=0.1", "Configuration.lrs expects"),
        ("lrs=[fast]", "Configuration.lrs[0] expects float, but got 'fast' (str)"),
        ("perhaps=much", "Configuration.perhaps expects int | None, but got 'much' (str)"),
        ("kind=c", "Configuration.kind expects Literal['a', 'b'], but got 'c' (str)"),
        ("more=[{deep: 1}]", "Inner has no 'deep': it has depth, names"),
        ("inner=3", "Configuration.inner expects the keys of Inner: 3"),
        ("parent=base", "Configuration has no 'parent'"),
        ("title=broken", "RuntimeError: the user's"),
    ],
)
def test_a_wrong_value_of_their_yaml_is_named(tmp_path: Path, override: str, said: str) -> None:
    ended = sheet(tmp_path, override)
    assert ended.returncode in (1, 2)
    assert said in ended.stderr, ended.stderr
    assert "yaml_file.py" not in ended.stderr
    assert "session.py" not in ended.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("file: nowhere\nid: a", "sheet.yaml:1: file: there is no file"),
        ("module: nowhere\nid: a", "sheet.yaml:1: module: there is no module nowhere"),
        ("file: experiment.py\nlr: 1", "Configuration needs id, which has no default"),
        ("file: project\nid: a", "sheet.yaml:1: file: there is no run in project"),
    ],
)
def test_a_file_of_their_form_that_lacks_something_says_what(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "experiment.py").write_text(FUNCTION)
    (tmp_path / "project.py").write_text("")
    (tmp_path / "sheet.yaml").write_text(text)
    ended = run(sys.executable, "-m", "tenuto", "run", "sheet.yaml", "-w", "new", cwd=tmp_path)
    assert ended.returncode == 2
    assert said in ended.stderr, ended.stderr
    assert not (tmp_path / "new").exists()


OPTIONS = """
import pytest
from tenuto.compat.experimaestro import install; install()
from experimaestro.launchers.slurm import SlurmLauncher, SlurmOptions
from experimaestro.launcherfinder import find_launcher
import tenuto
options = SlurmOptions(
    nodes=2, time="2-03:00:00", partition="gpu", account="me", mem="16G", cpus_per_task="4", gpus_per_node=2,
    exclude="bad[1-3]", mem_per_gpu="8G",
)
assert isinstance(options, tenuto.SlurmOptions)
assert (options.time_s, options.memory_bytes, options.cpus, options.gpus) == (183600.0, 16 << 30, 4, 2)
assert (options.partition, options.account) == ("gpu", "me")
assert options.extra == ("--exclude=bad[1-3]", "--mem-per-gpu=8G", "--nodes=2"), options.extra
times = {"90": 5400, "1:30": 90, "12:00:00": 43200, "2-0": 172800, "1-2:30": 95400}
for text, seconds in times.items():
    assert SlurmOptions(time=text).time_s == seconds, text
assert SlurmOptions(mem="1000").memory_bytes == 1000 << 20
assert isinstance(SlurmLauncher(options=options), tenuto.SlurmLauncher)
typed = SlurmOptions(gpus_per_node="a100:2", gpus="a100:2")
assert (typed.gpus, typed.gpu_type) == (2, "a100")
wrongs = ({"cpus_per_task": "x"}, {"gpus": "two"}, {"gpus": 2, "gpus_per_node": 1}, {"gpus": -1})
for wrong in ({"time": "soon"}, {"mem": "much"}, {"nice": 3}, *wrongs):
    with pytest.raises(ValueError):
        SlurmOptions(**wrong)
for wrong in ({"connector": object()}, {"binpath": "/opt/slurm"}, {"main": "login"}):
    with pytest.raises(ValueError, match=f"takes no {list(wrong)[0]} here"):
        SlurmLauncher(options=options, **wrong)
assert find_launcher("duration=2 h & cpu(cores=1)") is not None
from experimaestro.launcherfinder import cpu, cuda_gpu
from experimaestro.launcherfinder.parser import parse
from experimaestro.launcherfinder.specs import duration
both = cuda_gpu(mem="8G") * 2 & cpu(mem="4G", cores=2) & duration("4h") | cpu()
assert both == parse("duration=4h & cuda(mem=8G)*2 & cpu(mem=4G, cores=2) | cpu(cores=1)"), both
assert find_launcher(cuda_gpu() & duration(60), cpu(), tags={"short"}) is not None
"""


TYPICAL = """
from tenuto.compat.experimaestro import install; install()
from pathlib import Path
from experimaestro import (
    Config, DependentMarker, LightweightTask, Meta, Param, PathGenerator, ResumableTask, Task, experiment,
    field, progress, tagspath, tqdm,
)
from experimaestro.connectors.local import LocalConnector
from experimaestro.launcherfinder import find_launcher
from experimaestro.launchers.direct import DirectLauncher

class Model(Config):
    hidden: Param[int] = 3

    def __post_init__(self):
        self.weights = [0] * self.hidden

class Loaded(Config):
    model: Param[Model]
    path: Meta[Path]

class Learn(ResumableTask):
    model: Param[Model]
    lr: Param[float] = field(ignore_default=0.1)
    checkpoint: Meta[Path] = field(default_factory=PathGenerator("checkpoint"))

    def task_outputs(self, dep: DependentMarker):
        return dep(Loaded.C(model=self.model, path=self.checkpoint))

    def execute(self):
        for epoch in tqdm(range(3)):
            progress(epoch / 3, desc="epoch")
            self.checkpoint.write_text(f"{epoch} {self.lr}")
            self.remaining_time()

class Load(LightweightTask):
    loaded: Param[Loaded]

    def execute(self):
        self.loaded.text = self.loaded.path.read_text()

class Evaluate(Task):
    loaded: Param[Loaded]
    out: Meta[Path] = field(default_factory=PathGenerator("out.txt"))

    def execute(self):
        self.out.write_text(self.loaded.text)

if __name__ == "__main__":
    direct = DirectLauncher(connector=LocalConnector.instance())
    launchers = [direct, find_launcher("duration=1h & cpu(cores=1)")]
    with experiment(Path("workspace"), "typical") as xp:
        evaluations = []
        for lr, launcher in zip((0.1, 0.2), launchers):
            loaded = Learn.C(model=Model.C(), lr=lr).tag("lr", lr).submit(launcher=launcher)
            evaluations.append(Evaluate.C(loaded=loaded).submit(init_tasks=[Load.C(loaded=loaded)]))
        xp.wait()
        print([(one.out.read_text(), tagspath(one)) for one in evaluations])
"""


def test_a_typical_script_of_theirs_runs_after_one_line(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(TYPICAL)
    for _ in range(2):
        ended = run(sys.executable, "-W", "error", "script.py", cwd=tmp_path)
        assert "[('2 0.1', 'lr=0.1'), ('2 0.2', 'lr=0.2')]" in ended.stdout, ended.stderr


def test_their_options_of_slurm_are_ours(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(OPTIONS)
    ended = run(sys.executable, "script.py", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
