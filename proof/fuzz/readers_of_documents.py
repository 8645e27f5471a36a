"""Owns the other readers under test: parameters, runs, settings, filters, experiments."""

from __future__ import annotations

import json
import os
from pathlib import Path

from proof.fuzz import configs
from proof.fuzz.configs import Leaf, Tree
from proof.fuzz.targets import ELSEWHERE, NOW, Bench, Target, Wrong
from tenuto.errors import FilterError, TenutoError
from tenuto.experiments.run_record import RunState, RunStatus, lock_experiment, read_run_status
from tenuto.experiments.workspace_view import WorkspaceView
from tenuto.experiments.yaml_file import read_experiment
from tenuto.jobs.directories import from_task_dir
from tenuto.jobs.filters import parse_filter
from tenuto.jobs.key import JobKey
from tenuto.jobs.nearest import JobComparison, newest
from tenuto.jobs.parameters import read_stored
from tenuto.launchers.instructions import Instructions
from tenuto.launchers.requirements import Gpu, Host, Requirement
from tenuto.launchers.warm.parent_spec import ProcessVariables, spec_of
from tenuto.lifecycle.states import JobState
from tenuto.settings import load_settings
from tenuto.tasks.serialization import document, dumps, job_document, loads, state_dict
from tenuto.tasks.stored_configs import load, no_upstream, read_value


def documents(bench: Bench) -> list[Target]:
    def written() -> list[bytes]:
        leaf = Leaf.C(number=3, ratio=0.5, text="é", flags=[True, False])
        tree = Tree.C(left=leaf, right=leaf, names={"a": [1, 2]}, path=Path("x/y"))
        job = job_document(tree, Path(bench.job.directory), Path(bench.layout.partials), ["src"])
        return [dumps(document(tree)), dumps(job)]

    def params(data: bytes) -> None:
        bench.files.write(bench.job.params, data)
        read_stored(bench.files, bench.job)
        instructions = Instructions.of(bench.launch())._replace(command=None)
        spec_of(bench.files, bench.job, instructions, ProcessVariables({}, ()))

    def hostile() -> list[bytes]:
        """Documents of classes that lie in a file which the document names, and no import path has."""
        ours, theirs = json.dumps([Leaf.__module__, "Leaf"])[1:-1], json.dumps([ELSEWHERE, "Leaf"])[1:-1]
        file = json.dumps(os.path.realpath(configs.__file__)).encode()
        named = json.dumps(bench.elsewhere).encode()
        return [
            good.replace(ours.encode(), theirs.encode()).replace(file, named)
            for good in (dumps(state_dict(Leaf.C(number=3, ratio=0.5, text="é", flags=[]))), *written())
        ]

    def documents_of_configs() -> list[bytes]:
        return [*written(), *hostile()]

    def value(data: bytes) -> None:
        read_value(loads(data, "the input"), Path(bench.job.directory), no_upstream)

    def saved(data: bytes) -> None:
        bench.files.write(f"{bench.job.directory}/config.json", data)
        load(bench.job.directory)

    def task(data: bytes) -> None:
        bench.files.write(bench.job.params, data)
        from_task_dir(bench.job.directory)

    def nearest(data: bytes) -> None:
        other = bench.layout.job("a.Task", "cd34")
        bench.files.make_directory(other.directory)
        bench.files.write(other.params, data)
        earlier = newest(bench.files, bench.layout, "a.Task")
        str(JobComparison(bench.files, bench.layout).nearest(JobKey("a.Task", "ab12"), earlier))

    def view(data: bytes) -> None:
        for path in (bench.run.status, bench.run.environment, bench.run.jobs_list):
            bench.files.write(path, data)
        read_run_status(bench.files, bench.run)
        seen = WorkspaceView(bench.layout, bench.machine)
        for experiment in seen.experiments():
            for run in experiment.runs:
                seen.commits(run)
                seen.lines(run)

    def statuses() -> list[bytes]:
        status = RunStatus("sweep", "20260101_000000", RunState.DONE, NOW, "host", 1, NOW, 3, 1, 0, "well")
        git = {"git": [{"path": "/p", "commit": "abc", "dirty": True}]}
        return [status.encode(), json.dumps(git).encode()]

    lock = lock_experiment(bench.machine, bench.layout, "held")

    def holder(data: bytes) -> None:
        bench.files.write(bench.layout.experiment_lock("held"), data)
        WorkspaceView(bench.layout, bench.machine).runs("held")
        try:
            lock_experiment(bench.machine, bench.layout, "held")
        except TenutoError:
            return
        raise Wrong(f"a held experiment is given to another ({lock})")

    return [
        Target("params", "params.json, by those who only look", written, params),
        Target("params-value", "a document's configs", documents_of_configs, value, (TenutoError,)),
        Target("config", "config.json, by `load`", documents_of_configs, saved, (TenutoError,)),
        Target("task-directory", "params.json, `from_task_dir`", documents_of_configs, task, (TenutoError,)),
        Target("nearest", "params.json, by `plan` and `why`", documents_of_configs, nearest),
        Target("run", "status.json, environment.json and jobs.jsonl of a run", statuses, view),
        Target(
            "experiment-lock",
            "who holds an experiment",
            lambda: [b'{"host":"h","pid":1,"since":"x"}'],
            holder,
        ),
    ]


def texts(bench: Bench) -> list[Target]:
    here = Path(bench.root) / "settings"
    here.mkdir()
    home = {"HOME": str(here), "XDG_CONFIG_HOME": str(here / "none")}

    def settings(data: bytes) -> None:
        (here / "tenuto.toml").write_bytes(data)
        try:
            load_settings(start=here, environ=home)
        finally:
            (here / "tenuto.toml").unlink()

    def project(data: bytes) -> None:
        (here / "pyproject.toml").write_bytes(data)
        try:
            load_settings(start=here, environ=home)
        finally:
            (here / "pyproject.toml").unlink()

    def toml() -> list[bytes]:
        return [
            b'launcher = "spawn"\n[workspaces.main]\npath = "~/ws"\n[history]\nmax_done = 3\n',
            b'x = """a\nb"""\ny = [1, 2, {a = 1}]\n"quoted key".z = 1979-05-27T07:32:00Z\n',
        ]

    def filters(data: bytes) -> None:
        # A person who writes a regular expression waits for it: strangers may not.
        tree = parse_filter(data.decode("utf-8", "replace"), regex=False)
        tree.matches({"state": JobState.DONE, "lr": 0.1, "name": "x", "when": NOW, "tags": {"a": "b"}})
        if str(parse_filter(str(tree), regex=False)) != str(tree):
            raise Wrong("a filter is another one when it is written and read again")

    def requirement(data: bytes) -> None:
        read = Requirement.parse(data.decode("utf-8", "replace"))
        if Requirement.parse(str(read)) != read:
            raise Wrong("a requirement is another one when it is written and read again")
        read.match(Host(8, 1 << 34, (Gpu("cuda", 1 << 33), Gpu("rocm", 1 << 32)), 3600.0))

    def experiment(data: bytes) -> None:
        path = here / "sweep.yaml"
        path.write_bytes(data)
        read_experiment(path)

    def yaml() -> list[bytes]:
        return [
            b"task: my.T\nname: x\nparameters:\n  lr: 0.1\n  m: {size: 3}\ngrid_search:\n  seed: [1, 2]\n",
            b"a: &x [1, 2]\nb: *x\nc: !!str 3\nd: 0x1f\ne: 1_000\nf: ~\n",
        ]

    needs = [
        b"duration=4h & cpu(cores=8, mem=32G) & cuda(mem=24GiB)*2 | duration=1h30m",
        b"gpu | rocm*3 & cpu(mem=1.5 T) | duration = 2 Days 3.25hours & mps(mem=512kb)",
    ]
    words = [b'state = done and (lr < 0.1 or not name ~ "x*") ', b"tags.a = b or when > 2026-01-01"]
    return [
        Target("settings", "tenuto.toml", toml, settings, (TenutoError,)),
        Target("requirement", "a requirement", lambda: needs, requirement, (TenutoError,)),
        Target(
            "pyproject", "[tool.tenuto]", lambda: [b"[tool.tenuto]\n" + toml()[0]], project, (TenutoError,)
        ),
        Target("filter", "the filter language", lambda: words, filters, (FilterError,)),
        Target("experiment-file", "experiments in YAML", yaml, experiment, (TenutoError,)),
    ]
