"""Owns the fast making of many finished jobs: one is run, the others get what it left.

prepare.py COUNT, in an empty directory; leaves in ws/ what real jobs of `Work` leave. Parameters are each
job's own, written by Tenuto; all else is a copy of what the first job has, with the names changed.
"""

import json
import os
import sys
import uuid

from bench_tasks import Work

from tenuto import RunMode, experiment


def template(job):
    """file -> content of a finished job, with its names taken out."""
    with open(job.paths.done, "rb") as file:
        nonce = json.load(file)["nonce"]
    size = os.path.getsize(job.paths.params)  # a marker with another size has its job's parameters mended
    own = {job.paths.params, job.paths.script, job.paths.lock}
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


def main(count):
    with experiment("ws", "prepared"):
        first = Work.C(number=0).submit()
    left = template(first.job)
    with experiment("ws", "prepared", run_mode=RunMode.GENERATE_ONLY):
        for number in range(1, count):
            job = Work.C(number=number).submit().job
            names = job.job_id.encode(), uuid.uuid4().hex.encode(), b"%d" % os.path.getsize(job.paths.params)
            for name, content in left.items():
                with open(f"{job.paths.directory}/{name}", "wb") as file:
                    for field, value in zip((b"@job@", b"@nonce@", b"@bytes@"), names, strict=True):
                        content = content.replace(field, value)
                    file.write(content)
            os.unlink(job.paths.script)
            os.rmdir(job.paths.private)


if __name__ == "__main__":
    main(int(sys.argv[1]))
    print(json.dumps({"jobs": int(sys.argv[1])}))
