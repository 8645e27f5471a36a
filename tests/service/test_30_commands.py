"""Services with a command; folders and ZIPs in uploads; single files, progress, tokens for services."""

from __future__ import annotations

import io
import json
import struct
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.errors import RequestRefused
from tenuto.launchers.confinement import Guest, bwrap, gpu_devices
from tenuto.service import names
from tenuto.service.contract import ErrorCode
from tenuto.service.uploads import Receiver, UploadLimits
from tests.parts.answers import Answer
from tests.service.conftest import Tenuto
from tests.service.multipart import BOUNDARY, CONTENT_TYPE, body, field, file
from tests.service.servers import Process, eventually

LIMITS = UploadLimits(1 << 20, 50, 0)
SETTINGS = """
[service]
terminate_wait_s = 60
[services.upper]
description = "Makes letters large"
command = ["bash", "-c", '''
tr a-z A-Z < in.txt > out.txt; ls -R > seen.txt; printf %s "$1" > said''', "x", "a 'b' $HOME"]
inputs = ["in.txt", "*.cfg?", "more/*.txt?"]
max_input_bytes = 1000
walltime_s = 60
[services.wide]
command = ["bash", "-c", "echo $JOB_CPUS $OMP_NUM_THREADS"]
cpus = 2
[services.example]
[node]
slots = 4
"""


def upload(server: Process, service: str, *parts: bytes, token: str | None = None) -> Answer:
    headers = {"Content-Type": CONTENT_TYPE}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    user = () if token is not None else (field("user_id", "1"),)
    return server.request("POST", "/upload", body(*user, field("service", service), *parts), headers)


@pytest.fixture(scope="module")
def offering(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A server with an embedded node, and services of both kinds."""
    directory = tmp_path_factory.mktemp("offering")
    (directory / "tenuto.toml").write_text(SETTINGS)
    process = Process("serve", "--with-node", "--sandbox", "none", "--port", "0", cwd=directory)
    yield process
    process.close()


def files_of(server: Process, job_id: int) -> dict[str, bytes]:
    answer = server.get(f"/download/{job_id}?wait=30")
    assert answer.status == 200, answer
    with zipfile.ZipFile(io.BytesIO(answer.body)) as found:
        return {name: found.read(name) for name in found.namelist()}


def test_a_service_runs_its_own_command(offering: Process) -> None:
    parts = (file("in.txt", b"abc"), file("a.cfg", b"x"), file("more/b.txt", b"y"))
    answer = upload(offering, "upper", *parts)
    assert answer.status == 201, answer
    found = files_of(offering, answer.json["id"])
    assert found["out.txt"] == b"ABC"
    assert found["said"] == b"a 'b' $HOME", "no shell reads the arguments"
    assert b"./more:\nb.txt\n" in found["seen.txt"]
    assert found["more/b.txt"] == b"y"
    assert "run.sh" not in found


@pytest.mark.parametrize(
    ("code", "status", "sent"),
    [
        ("missing_input", 400, (file("a.cfg"),)),
        ("missing_input", 400, ()),
        ("unexpected_file", 400, (file("in.txt"), file("other"))),
        ("unexpected_file", 400, (file("in.txt"), file("run.sh"))),
        ("unexpected_file", 400, (file("in.txt"), file("sub/a.cfg"))),
        ("unexpected_file", 400, (file("in.txt"), file("more/deep/a.txt"))),
        ("too_large", 413, (file("in.txt", b"x" * 1001),)),
    ],
)
def test_files_that_a_command_does_not_take_are_refused(
    offering: Process, code: str, status: int, sent: tuple[bytes, ...]
) -> None:
    answer = upload(offering, "upper", *sent)
    assert (answer.status, answer.json["error"]) == (status, code)
    if code != "too_large":
        assert "in.txt, *.cfg?, more/*.txt?" in answer.json["message"]


def test_the_services_are_listed(offering: Process) -> None:
    listed = {one["name"]: one for one in offering.get("/services").json["services"]}
    assert set(listed) == {"upper", "wide", "example"}
    assert listed["example"]["inputs"] is None
    assert listed["wide"]["inputs"] == []
    upper = listed["upper"]
    assert upper["description"] == "Makes letters large"
    assert upper["inputs"] == [
        {"name": "in.txt", "required": True},
        {"name": "*.cfg", "required": False},
        {"name": "more/*.txt", "required": False},
    ]
    assert upper["limits"]["max_input_bytes"] == 1000
    assert (upper["limits"]["walltime_s"], upper["limits"]["runs_per_user"]) == (60, 5)


def test_a_job_takes_the_slots_of_its_service_and_is_told(offering: Process) -> None:
    job = upload(offering, "wide").json["id"]
    assert files_of(offering, job)[".tenuto/stdout"] == b"2 2\n"


def test_a_remote_node_runs_the_command_of_its_server(
    start: Callable[..., Process], tmp_path: Path, shared_node: Process
) -> None:
    (tmp_path / "tenuto.toml").write_text(
        f'[services.dock]\ncommand = ["cat", "in/a b.txt"]\ninputs = ["in/*"]\n'
        f'nodes = ["{shared_node.url}"]\n'
        f'[services.hello]\ncommand = ["echo", "hello"]\nnodes = ["{shared_node.url}"]\n'
        f'[services.plain]\nnodes = ["{shared_node.url}"]\n'
    )
    server = start("serve")
    job = upload(server, "dock", file("in/a b.txt", b"hello")).json["id"]
    assert files_of(server, job)[".tenuto/stdout"] == b"hello"
    job = upload(server, "hello").json["id"]
    assert files_of(server, job)[".tenuto/stdout"] == b"hello\n", "an upload without files"
    forged = upload(server, "plain", field("command", '["touch", "forged"]'), file("run.sh", b"ls\n"))
    assert "forged" not in files_of(server, forged.json["id"]), "a user's field is no command"


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ('inputs = ["a"]', "only a service with a command"),
        ('command = ["true"]\ninputs = ["../a"]', "can name no file"),
        ('command = ["true"]\ninputs = ["run.sh"]', "run.sh"),
        ('command = ["true"]\ninputs = ["a", "a?"]', "twice"),
        ('command = ["true"]\ninputs = ["/a"]', "slash"),
        ('command = ["no-such-program"]', "no program no-such-program"),
        ("command = []\ninputs = ['a']", "only a service with a command"),
        ('command = [""]', "services.dock.command"),
        ("cpus = 0", "services.dock.cpus"),
        ("cpus = 5000", "slots"),
        ("gpus = -1", "services.dock.gpus"),
        pytest.param(
            "gpus = 5000",
            "services.dock.gpus = 5000, and this node has 0",
            marks=pytest.mark.skipif(bool(gpu_devices()), reason="there are GPUs here"),
        ),
        ('max_input_bytes = "many"', "services.dock.max_input_bytes"),
        (f'command = ["true", "{"x" * 5000}"]', "longer than"),
    ],
)
def test_settings_that_cannot_be_are_refused_at_start(
    tenuto: Tenuto, tmp_path: Path, settings: str, word: str
) -> None:
    (tmp_path / "tenuto.toml").write_text(f"[services.dock]\n{settings}\n")
    ended = tenuto("serve", "--with-node", "--sandbox", "none", "--port", "0")
    assert ended.returncode == 2
    assert word in ended.stderr, ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["tenuto.toml"], "nothing is left behind"


def test_a_program_that_the_sandbox_hides_is_refused(
    tenuto: Tenuto, directory: Path, require: Callable[[str], None]
) -> None:
    require("bubblewrap")
    program = directory / "dock"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    Path("tenuto.toml").write_text(f'[services.dock]\ncommand = ["{program}"]\n')
    ended = tenuto("serve", "--with-node", "--sandbox", "bwrap", "--port", "0")
    assert ended.returncode == 2
    if "bubblewrap:" not in ended.stderr:
        assert "name its directory in paths" in ended.stderr


def test_devices_of_gpus_are_passed_into_the_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"/dev/nvidia*": ["/dev/nvidia0", "/dev/nvidiactl"], "/dev/dri": ["/dev/dri"]}
    monkeypatch.setattr("tenuto.launchers.confinement.glob", lambda pattern: found.get(pattern, []))
    line = " ".join(bwrap(Guest("/w", None, gpus=True)))
    assert "--dev-bind /dev/nvidia0 /dev/nvidia0 --dev-bind /dev/nvidiactl /dev/nvidiactl" in line
    assert line.index("--dev /dev") < line.index("--dev-bind")
    assert "nvidia" not in " ".join(bwrap(Guest("/w", None)))


# Folders and ZIPs


def take(directory: Path, *parts: bytes, limits: UploadLimits = LIMITS) -> tuple[str, ...]:
    receiver = Receiver(BOUNDARY, str(directory), limits)
    try:
        receiver.feed(body(*parts))
        received = receiver.finish()
        receiver.sync()
        return received.files
    finally:
        receiver.close()


def refusal(directory: Path, *parts: bytes, limits: UploadLimits = LIMITS) -> str:
    with pytest.raises(RequestRefused) as found:
        take(directory, *parts, limits=limits)
    return found.value.code


def zipped(*entries: tuple[str | zipfile.ZipInfo, bytes], kind: int = zipfile.ZIP_DEFLATED) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", kind) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return made.getvalue()


def test_a_name_with_slashes_makes_folders(tmp_path: Path) -> None:
    assert take(tmp_path, file("run.sh"), file("a/b/c.txt", b"1"), file("a/d", b"2")) == (
        "run.sh", "a/b/c.txt", "a/d",
    )  # fmt: skip
    assert (tmp_path / "a" / "b" / "c.txt").read_bytes() == b"1"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("code", "paths"),
    [
        ("bad_name", ["a/../b"]),
        ("bad_name", ["/etc/x"]),
        ("bad_name", ["a//b"]),
        ("bad_name", ["a/"]),
        ("bad_name", ["a/./b"]),
        ("bad_name", [".tenuto/job.json"]),
        ("bad_name", [".TENUTO/job.json"]),
        ("bad_name", ["a/.tenuto"]),
        ("bad_name", ["/".join("x" * 33)]),
        ("bad_name", ["/".join(["x" * 200] * 6)]),
        ("bad_name", ["a/nul"]),
        ("duplicate_name", ["a", "a/b"]),
        ("duplicate_name", ["a/b", "a"]),
        ("duplicate_name", ["a/b", "A/b"]),
        ("duplicate_name", ["a/b", "A/c"]),
        ("duplicate_name", ["a/b/c", "a/B"]),
    ],
)
def test_paths_that_could_do_harm_are_refused(tmp_path: Path, code: str, paths: list[str]) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    assert refusal(inside, *map(file, paths)) == code
    assert [path.name for path in tmp_path.iterdir()] == ["inside"]


def test_a_zip_is_unpacked_where_that_is_asked_for(tmp_path: Path) -> None:
    packed = zipped(("run.sh", b"ls\n"), ("data/", b""), ("data/a.txt", b"1"))
    unpacked = take(tmp_path, field("unpack", "in.zip"), file("in.zip", packed), file("more", b"2"))
    assert sorted(unpacked) == ["data/a.txt", "more", "run.sh"]
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        "data", "data/a.txt", "more", "run.sh",
    ]  # fmt: skip


def link() -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo("link")
    entry.external_attr = 0o120777 << 16
    return entry


@pytest.mark.parametrize(
    ("code", "packed"),
    [
        ("bad_archive", b"not a zip"),
        ("bad_archive", b""),
        ("bad_archive", zipped(("a", b"x" * 1000))[:-30]),
        ("bad_archive", zipped(("a", b"x" * 1000)).replace(b"\x4b\xac", b"\x4b\xad", 1)[:20] + b"PK"),
        ("bad_archive", zipped((link(), b"/etc/passwd"))),
        ("bad_name", zipped(("../x", b""))),
        ("bad_name", zipped(("/x", b""))),
        ("bad_name", zipped((".tenuto/x", b""))),
        ("duplicate_name", zipped(("a", b""), ("A", b""))),
        ("duplicate_name", zipped(("more", b""))),
        ("too_large", zipped(("zeros", bytes(2 << 20)))),
        ("too_large", zipped(*((f"z{n}", bytes(300 << 10)) for n in range(4)))),
        ("too_many_parts", zipped(*((f"f{n}", b"") for n in range(50)))),
        ("bad_run_sh", zipped(("run.sh", b""))),
        ("bad_archive", zipped(("a", b"x" * 99), kind=zipfile.ZIP_LZMA)),
        ("bad_archive", zipped(("a", b"x" * 99), kind=zipfile.ZIP_BZIP2)),
    ],
    ids=lambda value: value if isinstance(value, str) else "zip",
)  # fmt: skip
def test_a_zip_that_could_do_harm_is_refused(tmp_path: Path, code: str, packed: bytes) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    parts = (field("unpack", "in.zip"), file("more", b""), file("in.zip", packed))
    assert refusal(inside, *parts) == code
    assert [path.name for path in tmp_path.iterdir()] == ["inside"]


@given(
    kind=st.sampled_from((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)),
    changes=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), min_size=1, max_size=8),
)
def test_a_damaged_zip_is_refused_or_unpacked(kind: int, changes: list[tuple[int, int]]) -> None:
    """Whatever the parser raises of it, the answer is a refusal that names it, and no failure inside."""
    packed = bytearray(zipped(("run.sh", b"echo\n" * 9), ("a/b", b"q" * 99), kind=kind))
    for at, value in changes:
        packed[at % len(packed)] = value
    code = "unpacked"
    with tempfile.TemporaryDirectory() as directory:
        try:
            take(Path(directory), field("unpack", "z"), file("z", bytes(packed)))
        except RequestRefused as refused:
            code = refused.code
    assert code in {"unpacked", *(one.value for one in ErrorCode)}


@pytest.mark.parametrize("is_wide", [False, True], ids=["zip", "zip64"])
def test_the_list_of_files_in_a_zip_is_not_read_beyond_the_limit(tmp_path: Path, is_wide: bool) -> None:
    """The parser keeps all of it in memory: of 4 GiB of names it would need ten times as much."""
    size, offset = 1 << 19, 0
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, 2**32 - 1 if is_wide else size, offset, 0)
    if is_wide:
        far = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, size, offset)
        end = far + struct.pack("<4sLQL", b"PK\6\7", 0, size, 1) + end
    parts = (field("unpack", "z"), file("z", bytes(size) + end))
    assert refusal(tmp_path, *parts) == "too_many_parts"


def test_a_zip_to_unpack_must_be_there(tmp_path: Path) -> None:
    assert refusal(tmp_path, field("unpack", "in.zip"), file("other.zip", zipped())) == "bad_archive"


def test_a_lie_about_sizes_in_a_zip_helps_nobody(tmp_path: Path) -> None:
    packed = bytearray(zipped(("zeros", bytes(2 << 20))))
    size = (2 << 20).to_bytes(4, "little")
    while (at := packed.find(size)) >= 0:
        packed[at : at + 4] = (10).to_bytes(4, "little")
    assert refusal(tmp_path, field("unpack", "z"), file("z", bytes(packed))) in ("bad_archive", "too_large")


# One file, progress, tokens


def test_a_pattern_stays_in_its_folder() -> None:
    one = names.input_of("data/*.csv")
    assert one.matches("data/a.csv")
    assert not one.matches("data/b/a.csv")
    assert not one.matches("a.csv")
    assert names.input_of("data/**").matches("data/b/a.csv")
    assert not names.input_of("data/**").matches("data")
    assert names.input_of("[1].pdb").matches("[1].pdb")
    assert names.input_of("a?b?").matches("axb")


def test_one_file_comes_without_the_zip(offering: Process) -> None:
    script = "mkdir -p d; echo one > 'd/a b.txt'; head -c 3000000 /dev/zero > big; exit 3\n"
    job = offering.run(script, files={"in/x": b"y"})
    assert job["status"] == "Failed"
    where = f"/jobs/{job['id']}/files"
    listed = {one["name"]: one["bytes"] for one in offering.get(where).json["files"]}
    assert listed["d/a b.txt"] == 4
    assert listed["in/x"] == 1
    answer = offering.get(f"{where}/d/a%20b.txt")
    assert (answer.status, answer.body) == (200, b"one\n")
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''a%20b.txt"
    assert answer.headers["content-security-policy"] == "sandbox"
    assert offering.get(f"{where}/big").body == bytes(3_000_000)
    for wrong in ("nope", "..%2Fnope", "d", "%2Fetc/passwd"):
        missing = offering.get(f"{where}/{wrong}")
        assert (missing.status, missing.json["error"]) == (404, "not_found")
    assert offering.get("/jobs/999/files").status == 404


def test_a_running_job_shows_its_progress(offering: Process) -> None:
    script = "echo progress: 10 %; printf 'progress: 40 %% of \\x1b[1m it\\nprogress: half'; sleep 100\n"
    job_id = offering.upload(script).json["id"]
    try:
        job = eventually(lambda: (found := offering.job(job_id)).get("progress") and found)
        assert job["progress"] == "40 % of [1m it"
        assert offering.get(f"/jobs/{job_id}/files").json["error"] == "not_started"
    finally:
        offering.post(f"/terminate/{job_id}")
    assert offering.job(job_id)["progress"] is None


def test_a_token_is_for_its_services(tenuto: Tenuto, start: Callable[..., Process], tmp_path: Path) -> None:
    (tmp_path / "tenuto.toml").write_text("[services.a]\n[services.b]\n")
    token = tenuto("token", "create", "--user", "ada", "--services", "a, c").stdout.strip()
    wrong = tenuto("token", "create", "--user", "ada", "--services", "a b")
    assert (wrong.returncode, "cannot name a service" in wrong.stderr) == (2, True)
    assert tenuto("token", "create", "--user", "ada", "--services", " ").returncode == 2
    (listed,) = json.loads(tenuto("token", "list", "--json").stdout)
    assert listed["services"] == ["a", "c"]
    assert "for a,c" in tenuto("token", "list").stdout
    server = start("serve", "--with-node", "--sandbox", "none", "--auth", "tokens")
    assert upload(server, "a", file("run.sh"), token=token).status == 201
    refused = upload(server, "b", file("run.sh"), token=token)
    assert (refused.status, refused.json["error"]) == (403, "forbidden")
    seen = server.get("/services", Authorization=f"Bearer {token}").json["services"]
    assert [one["name"] for one in seen] == ["a"]
    assert server.get("/services").status == 401
