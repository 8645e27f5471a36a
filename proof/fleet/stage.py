"""Owns one play: users upload, wait and end jobs while processes are struck; then all is left alone to end.
One thread, which forks: nothing else runs beside it. Strikes are drawn from the seed; time is real.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

from proof.fleet.judge import FleetJob, judged
from proof.service.life import Life, NotReady
from tests.parts.postgresql import PostgreSQL

SERVERS, NODES, USERS, RUNS_PER_USER, MAX_RUNS = 2, 3, 6, 2, 7
ASK_S = 3.0
UNTIL_FINAL_S = 150.0
UNTIL_FOUND_S = 45.0
LONGEST_FREEZE_S = 20.0
"""Longer than a server may be silent: it is dismissed, and wakes."""
MOST_OPEN = 24
FINAL = ("Completed", "Failed", "Killed", "Invalid", "Cleaned")
TROUBLE = (OSError, http.client.HTTPException, ValueError)
START = "echo $JOB_ID:$(cat secret) >> {ledger}\n"
SCRIPTS = {
    "good": "sleep 0.{tenths}; head -c {size} /dev/urandom > data\n",
    "bad": "sleep 0.{tenths}; exit 7\n",
    "ended": "sleep 30\n",
}
BOUNDARY = "y" * 24


class Fleet:
    """The processes and jobs of one play."""

    def __init__(self, root: Path, url: str, random: random.Random, bug: str) -> None:
        self._root, self._url, self._random, self._bug = root, url, random, bug
        self.lives: dict[str, Life] = {}
        self._frozen: dict[str, float] = {}
        """Process -> when it goes on."""
        self._down: dict[str, float] = {}
        """Process -> when it is started again."""
        self.struck: Counter[str] = Counter()
        self.jobs: dict[int, FleetJob] = {}
        self.problems: list[str] = []
        self._keys = 0
        for number in range(NODES):
            self._configure(f"node{number}", f'[node]\nname = "n{number}"\nslots = 3\n')
            self._start(f"node{number}", 0)
        nodes = "".join(
            f'[nodes.n{number}]\nurl = "http://127.0.0.1:{self.lives[f"node{number}"].port}"\n'
            f'token_file = "{root}/node{number}/node/node.token"\n'
            for number in range(NODES)
        )
        names = ", ".join(f'"n{number}"' for number in range(NODES))
        for number in range(SERVERS):
            self._configure(
                f"server{number}",
                f'[service]\ndata = "{root}/data"\ndatabase = "{url}"\npoll_s = 0.2\nsend_for_s = 600\n'
                f"queued_per_user = 50\n[services.example]\nnodes = [{names}]\n"
                f"runs_per_user = {RUNS_PER_USER}\nmax_runs = {MAX_RUNS}\n{nodes}",
            )
            self._start(f"server{number}", 0)

    def _configure(self, name: str, settings: str) -> None:
        (self._root / name).mkdir()
        (self._root / name / "tenuto.toml").write_text(settings)

    def _start(self, name: str, port: int) -> None:
        command = ["node", "--sandbox", "none"] if name.startswith("node") else ["serve"]
        while True:
            life = Life(self._root / name, [*command, "--port", str(port)], bug=self._bug)
            try:
                life.wait_until_ready()
            except NotReady as error:  # PostgreSQL is down, or the port is not free yet
                life.end()
                if port == 0:
                    raise
                self.problems += [f"lost: {name} did not start: {error}"] if "Traceback" in str(error) else []
                time.sleep(0.2)
                continue
            self.lives[name] = life
            return

    # Strikes

    def strike(self, postgresql: PostgreSQL) -> None:
        """Something happens to one process, or to the database."""
        what = self._random.choices(("kill", "freeze", "stop", "database"), (6, 3, 3, 1))[0]
        if what == "database":
            self.struck["restarts of the database"] += 1
            postgresql.restart()
            return
        up = [name for name in self.lives if name not in self._frozen and name not in self._down]
        if not up:
            return
        name, now = self._random.choice(sorted(up)), time.monotonic()
        self.struck[{"kill": "kills", "freeze": "freezes", "stop": "stops"}[what]] += 1
        if what == "freeze":
            longest = self._random.choice((1.0, 5.0, LONGEST_FREEZE_S))
            os.kill(self.lives[name].pid, signal.SIGSTOP)
            self._frozen[name] = now + self._random.uniform(0.1, longest)
            return
        os.kill(self.lives[name].pid, signal.SIGKILL if what == "kill" else signal.SIGTERM)
        self._down[name] = now + self._random.uniform(0.0, 3.0)

    def revive(self, *, at_once: bool = False) -> None:
        """Lets processes go on, and starts those again that are down, whose time has come."""
        now = time.monotonic() + (1e9 if at_once else 0)
        for name in [name for name, at in self._frozen.items() if at <= now]:
            os.kill(self.lives[name].pid, signal.SIGCONT)
            del self._frozen[name]
        for name in [name for name, at in self._down.items() if at <= now]:
            life = self.lives[name]
            until = time.monotonic() + 40
            while not life.is_dead() and time.monotonic() < until and at_once:
                time.sleep(0.05)
            if not life.is_dead() and not at_once:
                continue  # it still drains
            port = life.port
            life.end()
            del self._down[name]
            self._start(name, port)
        for name in sorted(self.lives):
            if name not in self._down and name not in self._frozen and self.lives[name].is_dead():
                self.problems.append(f"lost: {name} ended by itself: {self.lives[name].log()[-600:]}")
                self._down[name] = 0.0

    # Users

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        """One answer of any server; 0 if there was none."""
        name = self._random.choice([f"server{number}" for number in range(SERVERS)])
        connection = http.client.HTTPConnection("127.0.0.1", self.lives[name].port, timeout=ASK_S)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except TROUBLE:
            return 0, b""
        finally:
            connection.close()

    def upload(self) -> None:
        """One user uploads one job, as often as it takes until a server answers."""
        kind = self._random.choices(("good", "bad", "ended"), (6, 2, 2))[0]
        user, secret = str(self._random.randrange(USERS)), f"{self._random.getrandbits(64):016x}"
        script = (START + SCRIPTS[kind]).format(
            ledger=self._root / "ledger",
            tenths=self._random.randrange(10),
            size=self._random.choice((10, 50_000, 3_000_000)),
        )
        parts = [("user_id", "", user), ("service", "", "example"), ("f", '; filename="run.sh"', script)]
        parts.append(("f", '; filename="secret"', secret))
        text = "".join(
            f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n{value}\r\n'
            for name, more, value in parts
        )
        self._keys += 1
        headers = {
            "Content-Type": f"multipart/form-data; boundary={BOUNDARY}",
            "Idempotency-Key": f"upload {self._keys}",
        }
        until = time.monotonic() + UNTIL_FINAL_S
        while time.monotonic() < until:
            code, body = self.ask("POST", "/upload", f"{text}--{BOUNDARY}--\r\n".encode(), **headers)
            if code == 201:
                id = int(json.loads(body)["id"])
                self.jobs[id] = FleetJob(id, user, kind, secret)
                return
            if 400 <= code < 500:
                self.problems.append(f"lost: an upload was answered {code}: {body!r:.200}")
                return
            self.revive()
            time.sleep(0.05)
        self.problems.append("lost: no server took an upload in time")

    def look(self) -> None:
        """The users look at their jobs, and end those that they do not want any more."""
        for job in [job for job in self.jobs.values() if job.status not in FINAL]:
            code, body = self.ask("GET", f"/jobs/{job.id}")
            if code == 404:
                self.problems.append(f"lost: job {job.id} is not there")
            if code != 200:
                continue
            said: dict[str, Any] = json.loads(body)
            if said["user_id"] != job.user:
                self.problems.append(f"wrong owner: job {job.id} of user {job.user} is {said['user_id']}'s")
            if job.kind == "ended" and said["status"] not in FINAL and self._random.random() < 0.3:
                self.ask("POST", f"/terminate/{job.id}")
            if said["status"] in FINAL:
                self.jobs[job.id] = job._replace(status=said["status"], message=said["message"])

    @property
    def open_count(self) -> int:
        return sum(job.status not in FINAL for job in self.jobs.values())

    def fetch(self) -> None:
        """The users fetch what their jobs left."""
        for job in list(self.jobs.values()):
            if job.status == "Completed":
                for _ in range(50):
                    code, body = self.ask("GET", f"/download/{job.id}")
                    if code == 200:
                        self.jobs[job.id] = job._replace(result=body)
                        break
                    time.sleep(0.1)

    def close(self) -> None:
        for name, life in self.lives.items():
            with suppress(ProcessLookupError):
                if name in self._frozen:
                    os.kill(life.pid, signal.SIGCONT)
            life.end()


def play(seed: int, seconds: float, bug: str = "") -> dict[str, Any]:
    """One play; what was struck, how many jobs there were, and what is wrong."""
    drawn = random.Random(seed)
    postgresql = PostgreSQL()
    parts = ExitStack()
    parts.callback(postgresql.end)
    with parts, tempfile.TemporaryDirectory(prefix="tn-fleet-") as place, postgresql.database() as url:
        root, name = Path(place), urlsplit(url).path.lstrip("/")
        fleet = Fleet(root, url, drawn, bug)
        try:
            began = time.monotonic()
            strike_at = began
            while (now := time.monotonic()) < began + seconds:
                fleet.revive()
                if now >= strike_at:
                    fleet.strike(postgresql)
                    strike_at = now + drawn.uniform(0.2, 1.5)
                if fleet.open_count < MOST_OPEN:
                    fleet.upload()
                fleet.look()
                fleet.problems += _over_quota(postgresql, name)
            fleet.revive(at_once=True)
            until = time.monotonic() + (UNTIL_FOUND_S if bug else UNTIL_FINAL_S)
            while fleet.open_count and time.monotonic() < until:
                fleet.revive(at_once=True)
                fleet.look()
                time.sleep(0.1)
            fleet.fetch()
            rows = postgresql.execute("SELECT id, user_id, state, server_id FROM jobs", name)
            problems = fleet.problems + judged(root, list(fleet.jobs.values()), rows)
            if problems and (kept := os.environ.get("FLEET_LOGS")):
                for process, life in fleet.lives.items():
                    Path(kept, f"{process}.log").write_text(life.log())
        finally:
            fleet.close()
    return {"problems": problems, "struck": dict(fleet.struck), "jobs": len(fleet.jobs), "root": str(root)}


def _over_quota(postgresql: PostgreSQL, database: str) -> list[str]:
    """Users, or all of them together, who have more jobs at work than they may."""
    active = "state IN ('Processing', 'Submitted', 'Running', 'Unknown')"
    query = f"SELECT user_id, count(*) FROM jobs WHERE {active} GROUP BY user_id"
    try:
        counts = {str(user): int(str(count)) for user, count in postgresql.execute(query, database)}
    except psycopg.OperationalError as error:
        if "does not exist" in str(error):
            raise
        return []
    over = [f"over quota: user {user} has {count}" for user, count in counts.items() if count > RUNS_PER_USER]
    return over + ([f"over quota: {sum(counts.values())} in all"] if sum(counts.values()) > MAX_RUNS else [])


def main() -> None:
    seed, seconds, *bug = sys.argv[1:]
    print(json.dumps(play(int(seed), float(seconds), bug[0] if bug else "")), flush=True)
