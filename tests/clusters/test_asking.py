"""Owns what a cluster is asked for: partitions of the settings, a throttle, and which word wins."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tenuto import ClusterLauncher, ClusterOptions, LauncherNotFound, Requirement
from tenuto.errors import InvalidSetting
from tenuto.launchers.cluster.dialect import JobScript, dialect_of
from tenuto.launchers.cluster.follower import ClusterFollower
from tenuto.settings import load_settings
from tenuto.settings.clusters import ClusterSettings

G = 1 << 30
PARTITIONS = """
[slurm.partitions.a100]
gpus = 4
gpu_memory = "80G"
time = "2d"
cores = 64
memory = "512G"

[slurm.partitions.v100]
gpus = 4
gpu_memory = "32G"
time = "1d12h"
cores = 32

[slurm.partitions.long]
cores = 16
time = 864000
"""


def settings_of(directory: Path, text: str) -> ClusterSettings:
    (directory / "tenuto.toml").write_text(text)
    return load_settings(start=directory, environ={}).cluster("slurm")


def launcher_of(settings: ClusterSettings, options: ClusterOptions | None = None) -> ClusterLauncher:
    follower = ClusterFollower(settings, name="slurm")
    return ClusterLauncher("slurm", options, settings=settings, cluster=follower, grace_s=10.0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cuda(mem=24G)", ["--gpus=1", "--partition=v100"]),
        ("cuda(mem=48G)*2 & duration=1h", ["--time=61", "--gpus=2", "--partition=a100"]),
        ("duration=5d & cpu(cores=2)", ["--time=7201", "--cpus-per-task=2", "--partition=long"]),
    ],
)
def test_a_partition_of_the_settings_is_chosen(tmp_path: Path, text: str, expected: list[str]) -> None:
    launcher = launcher_of(settings_of(tmp_path, PARTITIONS))
    adapted = launcher.adapted(Requirement.parse(text).alternatives[0])
    assert [word for word in adapted.arguments() if not word.startswith("--signal")] == expected


def test_what_no_partition_has_is_refused_with_the_reason_of_each(tmp_path: Path) -> None:
    launcher = launcher_of(settings_of(tmp_path, PARTITIONS))
    with pytest.raises(LauncherNotFound, match=r"no partition of slurm fits: a100: .*; v100: .*; long: "):
        launcher.adapted(Requirement.parse("cuda(mem=96G)").alternatives[0])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("cuda(mem=48G)", r"v100: cuda\(mem=48G\) is asked for, and it has"),
        ("cuda*5", r"v100: cuda\*5 is asked for"),
        ("cpu(cores=33)", "v100: 33 cores are asked for, and it offers 32"),
        ("duration=2d", "v100: 2d are asked for, and it allows"),
    ],
)
def test_a_partition_that_a_script_chose_must_have_what_the_job_needs(
    tmp_path: Path, text: str, why: str
) -> None:
    chosen = launcher_of(settings_of(tmp_path, PARTITIONS), ClusterOptions(partition="v100"))
    assert chosen.adapted(Requirement.parse("cuda(mem=24G)").alternatives[0]).options.partition == "v100"
    with pytest.raises(LauncherNotFound, match=rf"no partition of slurm fits: {why}"):
        chosen.adapted(Requirement.parse(text).alternatives[0])


def test_a_duration_fits_a_partition_with_what_is_asked_for_on_top(tmp_path: Path) -> None:
    launcher = launcher_of(settings_of(tmp_path, '[slurm.partitions.short]\ntime = "1h"\n'))
    longest = launcher.adapted(Requirement.parse("duration=59m20s").alternatives[0])
    assert longest.arguments() == ["--time=60", "--partition=short"]
    with pytest.raises(LauncherNotFound, match=r"allows 59m20s \(of its time 40s are for the end of a job\)"):
        launcher.adapted(Requirement.parse("duration=1h").alternatives[0])
    assert launcher.held(Requirement.parse("duration=8h").alternatives[0]).duration_s == 3560.0


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("gpu = 4", "a has a gpu, which is none of these"),
        ('time = "2x"', "a.time is seconds, or a time such as"),
        ("cores = 0", "a.cores is an integer, at least 1, not 0"),
        ('gpu_kind = "mps"', 'a.gpu_kind is "cuda" or "rocm"'),
    ],
)
def test_a_partition_that_makes_no_sense_is_refused(tmp_path: Path, line: str, why: str) -> None:
    said = f"slurm.partitions: expected tables of cores.*: {re.escape(why)}"
    with pytest.raises(InvalidSetting, match=said):
        settings_of(tmp_path, f"[slurm.partitions.a]\n{line}\n")


def test_a_launcher_that_was_chosen_for_one_task_wins_over_its_class() -> None:
    asked = launcher_of(ClusterSettings(cpus=2), ClusterOptions(time_s=10800.0))
    of_class = Requirement.parse("duration=2h & cpu(cores=4)").alternatives[0]
    assert asked.adapted(of_class).arguments() == ["--time=121", "--cpus-per-task=4"]
    assert asked.firm().adapted(of_class).arguments() == ["--time=181", "--cpus-per-task=4"]
    found = launcher_of(ClusterSettings()).adapted(Requirement.parse("duration=3h").alternatives[0])
    assert found.firm().adapted(of_class).arguments() == ["--time=181", "--cpus-per-task=4"]


def test_needs_that_grow_win_over_a_launcher_that_was_chosen_for_one_task() -> None:
    asked = launcher_of(ClusterSettings(), ClusterOptions(memory_bytes=G, time_s=3600.0))
    first = asked.firm().adapted(Requirement.parse("cpu(mem=4G)").alternatives[0])
    assert "--mem=1024M" in first.arguments()
    assert "--mem=2048M" in first.adapted(Requirement.parse("cpu(mem=2G)").alternatives[0]).arguments()


def test_a_partition_that_was_found_is_kept(tmp_path: Path) -> None:
    wanted = Requirement.parse("cuda(mem=24G)").alternatives[0]
    found = launcher_of(settings_of(tmp_path, PARTITIONS)).adapted(wanted)
    assert found.firm().adapted(wanted).options.partition == "v100"


def test_the_runner_holds_jobs_to_their_memory() -> None:
    launcher = launcher_of(ClusterSettings(memory_bytes=G))
    assert launcher.limits is not None
    assert launcher.limits.memory_bytes == G
    more = launcher.adapted(Requirement.parse("cpu(mem=2G)").alternatives[0])
    assert more.limits is not None
    assert more.limits.memory_bytes == 2 * G


@pytest.mark.parametrize(
    ("name", "word"),
    [("slurm", "--array=0-9%3"), ("sge", "-tc 3"), ("pbs", "0-9%3"), ("lsf", "a-01234567[1-10]%3")],
)
def test_an_array_is_throttled(monkeypatch: pytest.MonkeyPatch, name: str, word: str) -> None:
    spoken = dialect_of(name, ClusterSettings(dialect=name, throttle=3))
    commands: list[list[str]] = []
    monkeypatch.setattr(spoken, "run", lambda command, *_: commands.append(command))
    for jobs in (10, 1):
        with pytest.raises(AttributeError):
            spoken.submit(JobScript("a-01234567", jobs, [], "", "/x"))
    assert word in " ".join(commands[0])
    assert "3" not in " ".join(commands[1]).replace("a-01234567", "")


def test_a_system_that_cannot_throttle_says_so() -> None:
    with pytest.raises(InvalidSetting, match=r"clusters.condor.throttle: HTCondor has no word for it"):
        dialect_of("condor", ClusterSettings(dialect="condor", throttle=3))


GROWS = """
[slurm.partitions.small]
memory = "8G"
time = "2d"

[slurm.partitions.big]
memory = "48G"
time = "1h"

[slurm.partitions.gpu]
memory = "12G"
gpus = 2
gpu_memory = "32G"
"""


@pytest.mark.parametrize(
    ("first", "grown", "partition", "expected"),
    [
        ("cpu(mem=4G)", "cpu(mem=16G)", "big", "--mem=16384M"),
        ("cpu(mem=4G)", "cpu(mem=64G)", "big", "--mem=49152M"),
        ("cpu(mem=4G) & duration=1d", "cpu(mem=16G) & duration=1d", "gpu", "--mem=12288M"),
        ("cpu(mem=4G) & cuda(mem=24G)", "cpu(mem=16G)", "gpu", "--mem=12288M"),
        ("cpu(mem=4G) & cuda", "cpu(mem=8G)", "gpu", "--gpus=1"),
    ],
)
def test_needs_that_grow_choose_a_partition_anew_and_ask_for_no_more_than_one_has(
    tmp_path: Path, first: str, grown: str, partition: str, expected: str
) -> None:
    placed = launcher_of(settings_of(tmp_path, GROWS)).adapted(Requirement.parse(first).alternatives[0])
    after = placed.adapted(placed.held(Requirement.parse(grown).alternatives[0]))
    assert after.options.partition == partition
    assert expected in after.arguments()


def test_needs_that_grow_stay_in_a_partition_that_a_script_chose(tmp_path: Path) -> None:
    chosen = launcher_of(settings_of(tmp_path, GROWS), ClusterOptions(partition="small"))
    after = chosen.adapted(chosen.held(Requirement.parse("cpu(mem=16G)").alternatives[0]))
    assert (after.options.partition, after.options.memory_bytes) == ("small", 8 * G)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("slurm", "cuda(type=a100)*2", "--gpus=a100:2"),
        (
            "slurm",
            "nodes=2 & tasks=8 & cpu(cores=3, mem=4G) & cuda(type=a100)*4",
            "--nodes=2 --ntasks=8 --ntasks-per-node=4 --cpus-per-task=3 --mem=4096M --gpus-per-node=a100:4",
        ),
        (
            "slurm",
            "nodes=2 & cuda*4",
            "--nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=1 --gpus-per-node=4",
        ),
        ("slurm", "tasks=4", "--nodes=1 --ntasks=4 --ntasks-per-node=4 --cpus-per-task=1"),
        ("slurm", "nodes=1", ""),
        ("sge", "tasks=4 & cpu(cores=2)", "-pe smp 8"),
        (
            "pbs",
            "nodes=2 & tasks=8 & cpu(cores=3, mem=4G) & cuda(type=a100)*4",
            "-l select=2:ncpus=12:mpiprocs=4:mem=4096mb:ngpus=4:gpu_model=a100 -l place=scatter",
        ),
        ("pbs", "cpu(cores=2, mem=1G) & duration=1h", "-l walltime=01:00:40 -l ncpus=2 -l mem=1024mb"),
        ("pbs", "cuda(type=a100)*2", "-l select=1:ncpus=1:mpiprocs=1:ngpus=2:gpu_model=a100"),
        ("lsf", "nodes=2 & tasks=8 & cpu(cores=3)", "-n 24 -R span[ptile=12]"),
        ("lsf", "cuda(type=a100)*2", "-gpu num=2:gmodel=a100"),
    ],
)
def test_nodes_tasks_and_the_type_of_gpus_are_asked_for(name: str, text: str, expected: str) -> None:
    spoken = dialect_of(name, ClusterSettings(dialect=name))
    asked = ClusterOptions().adapted(Requirement.parse(text).alternatives[0])
    words = [word for word in spoken.arguments(asked, 10.0) if not word.startswith("--signal")]
    assert " ".join(words) == expected


@pytest.mark.parametrize("name", ["sge", "condor", "ssh"])
def test_a_system_that_cannot_be_asked_for_nodes_says_so(name: str) -> None:
    hosts = ("a:9",) if name == "ssh" else None
    spoken = dialect_of(name, ClusterSettings(dialect=name, hosts=hosts))
    how = (
        "" if name == "ssh" else f": say how in clusters.{name}.options"
    )  # a host by ssh can be asked nothing
    with pytest.raises(LauncherNotFound, match=rf"cannot be asked for nodes{how}$"):
        spoken.arguments(ClusterOptions(nodes=2))


def test_what_a_system_has_no_word_for_is_refused_before_any_job_is() -> None:
    settings = ClusterSettings(dialect="ssh", hosts=("a:4",), account="lab")
    with pytest.raises(LauncherNotFound, match=r"^ssh cannot be asked for account$"):
        ClusterLauncher("ssh", settings=settings, cluster=ClusterFollower(settings, name="ssh"))


def test_options_of_tasks_that_no_nodes_can_share_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="tasks must be a multiple of nodes"):
        ClusterOptions(nodes=2, tasks=3)


def test_a_partition_of_the_settings_is_chosen_by_the_type_of_its_gpus_and_its_nodes(tmp_path: Path) -> None:
    types = PARTITIONS.replace("gpus = 4", 'gpus = 4\ngpu_type = "A100"', 1) + "nodes = 1\n"
    launcher = launcher_of(settings_of(tmp_path, types))
    typed = launcher.adapted(Requirement.parse("cuda(type=a100)").alternatives[0])
    assert (typed.options.partition, "--gpus=1" in typed.arguments()) == ("a100", True)
    wide = launcher.adapted(Requirement.parse("duration=1h & nodes=2").alternatives[0])
    assert wide.options.partition == "v100"
    with pytest.raises(LauncherNotFound, match=r"v100: cuda\(type=a10\) is asked for, and it has cuda"):
        launcher.adapted(Requirement.parse("cuda(type=a10)").alternatives[0])


SUBMIT = ("qsub", "-N", "{name}", "{options}", "[", "-t", "1-{count}", "]", "{script}")


@pytest.mark.parametrize(
    ("dialect", "given", "said"),
    [
        ("sge", {"hosts": ("a:4",)}, "hosts: the dialect sge has no use for it"),
        ("ssh", {"signal": ("kill", "{ids}")}, "signal: the dialect ssh has no use for it"),
        ("ssh", {"options": {"gpus": "-g {n}"}}, "options: the dialect ssh has no use for it"),
        ("ssh", {"extra": ("-x",)}, "extra: the dialect ssh has no use for it"),
        ("ssh", {"hosts": ("a:4", "a:2")}, "hosts: a host stands there twice"),
        ("ssh", {"hosts": ("-oProxyCommand=x:4",)}, "hosts: '-oProxyCommand=x:4' is no host with its slots"),
        ("ssh", {"hosts": ("a b:4",)}, "hosts: 'a b:4' is no host with its slots"),
        ("ssh", {"hosts": ("::1",)}, "hosts: '::1' is no host with its slots"),
        ("sge", {"submit": (*SUBMIT, "{bogus}")}, "submit: {bogus} is none of {name} {out}"),
        ("sge", {"submit": ("qsub", "-N", "{name}", "{script}")}, "submit: {options} is missing"),
        ("sge", {"submit": (*SUBMIT[:3], "x{options}")}, "submit: {options} stands for several words"),
        ("sge", {"submit": ("qsub", "{options}", "-t", "1-{count}")}, "submit: {name} is missing"),
        (
            "sge",
            {"submit": SUBMIT[:4]},
            "submit: {count} or {last} is missing, and an array would be one job",
        ),
        ("lsf", {"submit": ("bsub", "{options}")}, "submit: {name} is missing"),
        ("pbs", {"cancel": ("qdel",)}, "cancel: {ids} or {comma_ids} is missing, and it would name no job"),
        ("pbs", {"signal": ("qsig", "--jobs={ids}")}, "signal: {ids} stands for several words"),
        ("pbs", {"end": ("qstat", "{id}")}, "end: {id} is none of {ids} {comma_ids}"),
        ("slurm", {"cancel": ("scancel", "[", "{ids}")}, "cancel: `[` and `]` must come in pairs"),
        ("slurm", {"options": {"time": "--time={mins}"}}, "options: time: {mins} is none of {n} {value}"),
        ("slurm", {"limit_words": ("--signal={n}",)}, "limit_words: {n} is none of"),
        ("slurm", {"list": ("squeue", "{me}")}, "list: {me} is none of {user}"),
        ("sge", {"variables": {"task": "{job}"}}, "variables: task must hold {job} and {index}"),
        ("generic", {"submit": ("qsub",), "extra": ("-x",)}, "submit: {options} is missing"),
    ],
)
def test_words_by_which_a_job_would_be_lost_sight_of_are_refused(
    dialect: str, given: dict[str, Any], said: str
) -> None:
    settings = ClusterSettings(
        **({"dialect": dialect, "hosts": ("a:4",) if dialect == "ssh" else None} | given)
    )
    with pytest.raises(InvalidSetting, match=re.escape(f"clusters.hall.{said}")):
        dialect_of("hall", settings)


@pytest.mark.parametrize("dialect", ["slurm", "sge", "pbs", "lsf", "condor"])
def test_a_dialect_s_own_words_can_be_said_in_the_settings(dialect: str) -> None:
    own = dialect_of("hall", ClusterSettings(dialect=dialect))
    words = {"submit": own.submit_words, "list": own.list_words, "end": own.end_words}
    more = {"cancel": own.cancel_words, "signal": own.signal_words, "options": own.options}
    said = ClusterSettings(dialect=dialect, **words, **more, variables=own.variables, states=own.states)
    assert dialect_of("hall", said).submit_words == own.submit_words


@pytest.mark.parametrize("name", ["a b", "../x", "a/b", "signals", "slurm-pilots", "x-slots", "-x", "ü"])
def test_a_name_that_is_no_directory_of_its_own_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidSetting, match=r"is no name of a cluster|there is no such setting"):
        settings_of(tmp_path, f'[clusters."{name}"]\ndialect = "sge"\n')


def test_pilots_that_no_host_can_hold_are_refused_at_once() -> None:
    settings = ClusterSettings(dialect="ssh", hosts=("a:2",), pilots=1)
    with pytest.raises(LauncherNotFound, match="no host of lab has 8 slots"):
        ClusterLauncher("lab", settings=settings, cluster=ClusterFollower(settings, name="lab"))


def test_a_site_s_own_words_for_nodes_hold_for_pbs_too() -> None:
    words = {"nodes": "-l nodes={n}:ppn={cores_per_node}"}
    spoken = dialect_of("pbs", ClusterSettings(dialect="pbs", options=words))
    assert spoken.arguments(ClusterOptions(nodes=2, tasks=4, cpus=3)) == ["-l", "nodes=2:ppn=6"]


PILOTS = """
[slurm]
pilots = 2
pilot_cpus = 4
"""
SMALL = '\n[slurm.partitions.short]\ntime = "1h"'


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ('memory_bytes = "1G"', "slurm.memory_bytes is asked for, which a pilot does not share out"),
        ("gpus = 1", "slurm.gpus is asked for, which a pilot does not share out"),
        ("cpus = 5", "slurm.cpus (5) is more than slurm.pilot_cpus (4)"),
        ("time_s = 14400", "slurm.time_s (14400) is more than slurm.pilot_time_s (3600)"),
        (SMALL, "partition short has no room for a pilot: 1h are asked for, and it allows 59m20s"),
        ("cpus = 4\ntime_s = 3600", None),
        (f'{SMALL}\n[slurm.partitions.long]\ntime = "1d"', None),
    ],
)
def test_a_driver_says_why_no_job_of_its_settings_runs_in_a_pilot(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, more: str, why: str | None
) -> None:
    launcher_of(settings_of(tmp_path, PILOTS + more))
    assert caplog.messages == ([] if why is None else [f"jobs get allocations of their own: {why}"])


def test_no_pilot_is_asked_of_a_partition_that_has_no_room_for_one(tmp_path: Path) -> None:
    """It would pend for ever."""
    long = f'{PILOTS}{SMALL}\n[slurm.partitions.long]\ntime = "1d"\npriority = 1'
    launcher = launcher_of(settings_of(tmp_path, long))
    own = launcher.slots
    (needs,) = Requirement.parse("duration=10m").alternatives
    assert launcher.adapted(needs).slots == own
    shut = launcher_of(settings_of(tmp_path, PILOTS + SMALL))
    assert shut.adapted(needs).slots == shut.settings.max_jobs
