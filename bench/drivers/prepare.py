"""Owns the fast making of many finished jobs: one is run, the others get what it left.

prepare.py COUNT [packed], in an empty directory; leaves in ws/ what real jobs of `Work` leave, and a run that
lists them. Parameters are each job's own, written by Tenuto; all else is a copy of what the first job has,
with the names changed. Packed jobs are recorded from a disk in memory, by the code that packs.
"""

import json
import os
import sys
import uuid
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime
from multiprocessing import get_context

from bench_tasks import Work

from tenuto import Catalogue, experiment
from tenuto.scheduler.jobs import TaskWork
from tenuto.tasks.identity import identity
from tenuto.testing.disk import FakeDisk
from tenuto.workspace import packs
from tenuto.workspace.jobslist import JobLine, JobsList
from tenuto.workspace.layout import Layout
from tenuto.workspace.machine import this_machine

AT_ONCE = 1_000


def template(job):
    """file -> content of a finished job, with its names taken out."""
    with open(job.paths.done, "rb") as file:
        nonce = json.load(file)["nonce"]
    size = os.path.getsize(job.paths.params)  # a marker with another size has its job's parameters mended
    own = {job.paths.params, job.paths.lock}
    found = {}
    for directory, _, names in os.walk(job.paths.directory):
        for path in {f"{directory}/{name}" for name in names} - own:
            with open(path, "rb") as file:
                content = (
                    file.read().replace(job.job_id.encode(), b"@job@").replace(nonce.encode(), b"@nonce@")
                )
            content = content.replace(b'"params_bytes":%d' % size, b'"params_bytes":@bytes@')
            found[os.path.relpath(path, job.paths.directory)] = content
    return found


def make(layout, task_id, left, numbers, is_packed):
    """The jobs of some numbers: ids, and the record of each that is packed."""
    disk, made = FakeDisk(), []
    for number in numbers:
        task = Work.C(number=number)
        paths = layout.job(task_id, identity(task))
        params = TaskWork(task).params(layout, paths)
        names = paths.directory.rpartition("/")[2].encode(), uuid.uuid4().hex.encode(), b"%d" % len(params)
        if is_packed:
            disk.make_directory(paths.directory)
        else:
            os.makedirs(paths.directory, 0o700)
            os.close(os.open(paths.lock, os.O_CREAT | os.O_WRONLY, 0o600))
        for name, content in {**left, "params.json": params}.items():
            for field, value in zip((b"@job@", b"@nonce@", b"@bytes@"), names, strict=True):
                content = content.replace(field, value)
            if is_packed:
                disk.write(f"{paths.directory}/{name}", content)
            else:
                with open(f"{paths.directory}/{name}", "wb") as file:
                    file.write(content)
        made.append((names[0].decode(), packs.record_of(disk, paths, 0) if is_packed else b""))
        if is_packed:
            disk.remove_tree(paths.directory)
    return made


def main(count, is_packed):
    with experiment("ws", "prepared") as run:
        first = Work.C(number=0).submit().job
    layout, machine = Layout(os.path.abspath("ws")), this_machine()
    left, task_id = template(first), first.task_id
    listed = JobsList(machine.files, place := layout.run("prepared", run.run_id))
    parts = [range(at, min(at + AT_ONCE, count)) for at in range(1, count, AT_ONCE)]
    fixed = [[one] * len(parts) for one in (layout, task_id, left)]
    with ProcessPoolExecutor(mp_context=get_context("fork")) as pool:
        for made in pool.map(make, *fixed, parts, [is_packed] * len(parts)):
            now = datetime.now().astimezone()
            for job_id, _ in made:
                listed.append(JobLine(job_id, task_id, now))
            if is_packed:
                packs.append(machine, layout.pack(task_id), [record for _, record in made])
    listed.close()
    if is_packed:
        packs.keep_index(machine, layout.pack(task_id))
    with open(place.status) as file:
        status = json.load(file)
    with open(place.status, "w") as file:
        json.dump({**status, "jobs": count, "counts": {"done": count}}, file)
    if is_packed:
        Catalogue("ws").view.keep_columns()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:] == ["packed"])
    print(json.dumps({"jobs": int(sys.argv[1])}))
