"""Owns what a job asks of Slurm: the arguments of sbatch, and what cannot be said."""

from __future__ import annotations

from typing import Any

import pytest

from tenuto import LauncherNotFound, Requirement, SlurmLauncher, SlurmOptions
from tenuto.errors import InvalidSetting
from tenuto.launchers.cluster.dialect import ClusterOptions
from tenuto.launchers.cluster.follower import ClusterFollower
from tenuto.settings.clusters import ClusterSettings

G = 1 << 30


def asked(options: ClusterOptions, text: str) -> list[str]:
    launcher = SlurmLauncher(options, settings=ClusterSettings(), cluster=ClusterFollower(), grace_s=10.0)
    return launcher.adapted(Requirement.parse(text).alternatives[0]).arguments()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "cuda*2 & cpu(cores=8, mem=32G) & duration=4h",
            ["--time=241", "--cpus-per-task=8", "--mem=32768M", "--gpus=2"],
        ),
        ("duration=61s", ["--time=2"]),
        ("duration=1m & cpu(cores=1, mem=1.0001M)", ["--time=2", "--mem=2M"]),
        ("duration=1h & gpu", ["--time=61", "--gpus=1"]),
        ("duration=1h & rocm*3", ["--time=61", "--gpus=3"]),
        ("cpu(cores=2)", ["--cpus-per-task=2", "--signal=B:USR1@60"]),
    ],
)
def test_a_requirement_becomes_arguments(text: str, expected: list[str]) -> None:
    assert asked(SlurmOptions(), text) == expected


def test_what_a_requirement_leaves_open_is_as_the_settings_say() -> None:
    settings = ClusterSettings(
        partition="long",
        account="lab",
        qos="high",
        constraint="a100",
        time_s=60.0,
        cpus=4,
        extra=("--nice=5",),
    )
    assert asked(SlurmOptions.of(settings), "cpu(mem=1G)") == [
        "--time=2",
        "--cpus-per-task=4",
        "--mem=1024M",
        "--partition=long",
        "--account=lab",
        "--qos=high",
        "--constraint=a100",
        "--nice=5",
    ]


@pytest.mark.parametrize(
    ("text", "said"), [("cuda(mem=24G)", "choose a partition for it in launchers.py"), ("mps", "mps")]
)
def test_what_slurm_cannot_be_asked_is_refused(text: str, said: str) -> None:
    with pytest.raises(LauncherNotFound, match=said):
        asked(SlurmOptions(), text)


@pytest.mark.parametrize(
    "given",
    [
        {"partition": ""},
        {"account": "a\nb"},
        {"time_s": 0},
        {"time_s": float("nan")},
        {"cpus": 0},
        {"cpus": 1.5},
        {"gpus": -1},
        {"memory_bytes": 0},
        {"extra": ("--array=1-5",)},
        {"extra": ("-o/dev/null",)},
        {"extra": ("--requeue",)},
        {"extra": ("a\0b",)},
    ],
)
def test_options_that_make_no_sense_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting):
        SlurmOptions(**given)
