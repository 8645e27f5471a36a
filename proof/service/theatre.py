"""Owns one case: a server and a node that die at their kill points and are started again, until all is final.
Runs as `python -m proof.service.theatre DIRECTORY` with cases on stdin; `judge` says what is wrong.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from proof.service.case import APART, Case
from proof.service.judge import Job, judged
from proof.service.life import Life, NotReady

UNTIL_FINAL_S = 90.0
UNTIL_FOUND_S = 12.0
"""How long a planted bug may leave a job hanging, until that counts as seen."""
MORE_JOBS = 3
"""Jobs that are uploaded besides, where a kill point was not met yet."""
BOUNDARY = "x" * 24
FINAL = ("Completed", "Failed", "Killed", "Invalid", "Cleaned")
SETTINGS = """[service]
poll_s = 0.1
terminate_wait_s = 0.2
[services.example]
runs_per_user = 10
{nodes}
[node]
slots = 4
"""
SCRIPTS = {
    "good": "head -c 200000 /dev/urandom > data; echo end $JOB_ID >> {ledger}\n",
    "bad": "exit 7\n",
    "ended": "exec sleep 600\n",
}
START = "echo start $JOB_ID >> {ledger}\n"
TROUBLE = (OSError, http.client.HTTPException)


class Stuck(Exception):
    """A job that is not final in time."""


class Theatre:
    """The processes and jobs of one case."""

    def __init__(self, root: Path, case: Case) -> None:
        self._root = root
        self._case = case
        self._until = time.monotonic() + (UNTIL_FOUND_S if case.bug else UNTIL_FINAL_S)
        self.ledger = root / "ledger"
        self.jobs: list[Job] = []
        self._armed = list(case.points)
        self.node: Life | None = None
        for name in ("server", "node"):
            (root / name).mkdir(parents=True)
        (root / "node" / "tenuto.toml").write_text("[node]\nslots = 4\n")
        if case.layout == APART:
            self.node = self._started("node", ["node", "--sandbox", "none", "--port", "0"])
            secret = root / "node" / "node" / "node.token"
            nodes = (
                f'nodes = ["far"]\n[nodes.far]\n'
                f'url = "http://127.0.0.1:{self.node.port}"\ntoken_file = "{secret}"'
            )
        else:
            nodes = ""
        (root / "server" / "tenuto.toml").write_text(SETTINGS.format(nodes=nodes))
        self.server = self._start_server()

    # Processes

    def _point(self, who: str) -> str | None:
        """Where the next life of a process is to die."""
        left = [point for point in self._armed if not (self._root / f"struck-{point}").exists()]
        if self._case.layout == APART:
            left = [point for point in left if point[0] == who[0].upper()]
        return left[0] if left else None

    def _started(self, who: str, arguments: list[str]) -> Life:
        while True:
            life = Life(self._root / who, arguments, self._point(who), self._case.bug)
            try:
                life.wait_until_ready()
            except NotReady as error:
                life.end()
                if not self._was_struck(life):
                    raise Stuck(f"{who} does not start: {error}") from None
                self._check_time()
                continue
            return life

    def _was_struck(self, life: Life) -> bool:
        return any((self._root / f"struck-{point}").exists() for point in self._armed)

    def _start_server(self) -> Life:
        more = [] if self._case.layout == APART else ["--with-node", "--sandbox", "none"]
        return self._started("server", ["serve", "--port", "0", *more])

    def _revive(self) -> None:
        """Starts again what was killed."""
        if self.node is not None and self.node.is_dead():
            port = self.node.port
            self.node.end()
            self.node = self._started("node", ["node", "--sandbox", "none", "--port", str(port)])
        if self.server.is_dead():
            self.server.end()
            self.server = self._start_server()

    def close(self) -> None:
        for life in (self.server, self.node):
            if life is not None:
                life.end()

    def _check_time(self) -> None:
        if time.monotonic() > self._until:
            raise Stuck(f"not final in time: {[job for job in self.jobs if job.status not in FINAL]}")

    def _asked(self, *question: Any) -> tuple[int, Any]:
        """The answer to a question, asked again until a server answers it."""
        while True:
            self._check_time()
            self._revive()
            try:
                code, body = self.server.ask(*question)
                if code < 500:
                    return code, body
            except TROUBLE:
                time.sleep(0.02)

    # The play

    def play(self) -> None:
        """Uploads, ends, cleans, until both blows fell and every job is final."""
        # The first job meets most kill points; a node that runs a job again does so with one that failed.
        good_first = self._case.points[0] < self._case.points[1] and not self._case.bug
        kinds = ["good", "bad"] if good_first else ["bad", "good"]
        for kind in [*kinds, *(["ended"] if "S9" in self._case.points else [])]:
            self._upload(kind)
        self._wait_for_ends()
        if "N7" in self._case.points:
            self._clean()
        for _ in range(MORE_JOBS):
            if all(self._fell(point) for point in self._case.points):
                break
            self._upload("ended" if not self._fell("S9") and "S9" in self._case.points else "good")
            self._wait_for_ends()
        if "N7" in self._case.points:
            self._clean()

    def _fell(self, point: str) -> bool:
        return (self._root / f"struck-{point}").exists()

    def _upload(self, kind: str) -> None:
        script = (START + SCRIPTS[kind]).format(ledger=self.ledger)
        parts = [("user_id", "", "1"), ("service", "", "example"), ("file", '; filename="run.sh"', script)]
        text = "".join(
            f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n{value}\r\n'
            for name, more, value in parts
        )
        headers = {
            "Content-Type": f"multipart/form-data; boundary={BOUNDARY}",
            "Idempotency-Key": f"job {len(self.jobs)}",
        }
        code, body = self._asked("POST", "/upload", f"{text}--{BOUNDARY}--\r\n".encode(), headers)
        if code != 201:
            raise Stuck(f"an upload was answered {code}: {body!r}")
        self.jobs.append(Job(json.loads(body)["id"], kind))

    def _wait_for_ends(self) -> None:
        for place, job in enumerate(self.jobs):
            if job.status in FINAL:
                continue
            if job.kind == "ended":
                self._until_true(partial(self._is_in, job.id, ("Running", *FINAL)))
                self._asked("POST", f"/terminate/{job.id}")
            self._until_true(partial(self._is_in, job.id, FINAL))
            said = self._status(job.id)
            result = self._asked("GET", f"/download_partial/{job.id}")[1]
            self.jobs[place] = job._replace(status=said["status"], message=said["message"], result=result)

    def _is_in(self, id: int, states: tuple[str, ...]) -> bool:
        return self._status(id)["status"] in states

    def _status(self, id: int) -> dict[str, Any]:
        code, body = self._asked("GET", f"/jobs/{id}?wait=1")
        if code != 200:
            raise Stuck(f"job {id} is answered {code}: {body!r}")
        said: dict[str, Any] = json.loads(body)
        return said

    def _clean(self) -> None:
        """Has the node clean, until nothing of an ended payload is left."""
        (self._root / "clean").touch()
        where = self._root / "server" / "data" / "node" if self.node is None else self._root / "node" / "node"
        self._until_true(lambda: not list((where / "jobs" / "payload").iterdir()))
        (self._root / "clean").unlink()  # what comes now is young

    def _until_true(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._check_time()
            self._revive()
            time.sleep(0.02)


def play(root: Path, case: Case) -> list[str]:
    """What is wrong with a case; nothing if all promises were kept."""
    theatre: Theatre | None = None
    try:
        theatre = Theatre(root, case)
        theatre.play()
        return judged(root, case, theatre.jobs)
    except Stuck as error:
        lives = [] if theatre is None else [theatre.server, *([theatre.node] if theatre.node else [])]
        return [f"stuck: {error}", *(life.log()[-1500:] for life in lives)]
    finally:
        if theatre is not None:
            theatre.close()


def main() -> None:
    root = Path(sys.argv[1])
    for number, fields in enumerate(json.load(sys.stdin)):
        case = Case(**fields)
        began = time.monotonic()
        problems = play(root / str(number), case)
        result = {"case": fields, "problems": problems, "seconds": time.monotonic() - began}
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
