"""Owns the requirement language: what each text means, where a wrong one breaks, and which hosts fit."""

from __future__ import annotations

import string
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto import Alternative, Gpu, Gpus, Host, Requirement, RequirementError
from tenuto.launchers.requirements import KINDS, LARGEST_BYTES, LONGEST_S, choose_devices, unfit

G = 1 << 30


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("duration=4h", Alternative(4 * 3600)),
        ("duration = 1 Hour 30 MIN", Alternative(5400)),
        ("duration=1d2h3m4s", Alternative(86400 + 7200 + 180 + 4)),
        ("duration=1.5h", Alternative(5400)),
        ("duration=0.25s", Alternative(0.25)),
        ("duration=90secs", Alternative(90)),
        ("cpu(cores=8, mem=32G)", Alternative(cores=8, memory_bytes=32 * G)),
        ("cpu ( mem = 1.5 gib , cores = 2 )", Alternative(cores=2, memory_bytes=3 * G // 2)),
        ("cpu(cores=2) & cpu(mem=100MB)", Alternative(cores=2, memory_bytes=100 << 20)),
        ("cpu(mem=1.0001K)", Alternative(memory_bytes=1025)),
        ("cuda", Alternative(gpus=Gpus("cuda"))),
        ("gpu*2", Alternative(gpus=Gpus("gpu", 2))),
        ("cuda(mem=24GB) * 2", Alternative(gpus=Gpus("cuda", 2, 24 * G))),
        ("rocm(mem=1T)&duration=2days", Alternative(2 * 86400, gpus=Gpus("rocm", 1, 1 << 40))),
        ("mps", Alternative(gpus=Gpus("mps"))),
        ("cuda(type=a100, mem=24G)*2", Alternative(gpus=Gpus("cuda", 2, 24 * G, "a100"))),
        ("gpu ( type = rtx_3090 )", Alternative(gpus=Gpus("gpu", type="rtx_3090"))),
        ("gpu(type=H100-80GB.x)&duration=1h", Alternative(3600, gpus=Gpus("gpu", type="H100-80GB.x"))),
        ("nodes=2 & tasks=8", Alternative(nodes=2, tasks=8)),
        ("tasks=4&cpu(cores=2)", Alternative(cores=2, tasks=4)),
        ("nodes = 3", Alternative(nodes=3)),
    ],
)
def test_a_text_means_an_alternative(text: str, expected: Alternative) -> None:
    assert Requirement.parse(text) == Requirement((expected,))


def test_alternatives_keep_their_order() -> None:
    read = Requirement.parse("cuda*2 | duration=1h & cuda | duration=1d")
    assert [str(one) for one in read.alternatives] == ["cuda*2", "duration=1h & cuda", "duration=1d"]


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        (
            "cuda ( mem=24 gb )*2&cpu(mem=32768M,cores=8) & duration=240min|duration=1.5h",
            "duration=4h & cpu(cores=8, mem=32G) & cuda(mem=24G)*2 | duration=1h30m",
        ),
        ("duration=36h", "duration=1d12h"),
        ("duration=0.5m", "duration=30s"),
        ("duration=0.1s", "duration=0.1s"),
        ("cpu(mem=1.5G)", "cpu(mem=1536M)"),
        ("cpu(cores=1)", "cpu(cores=1)"),
        ("gpu*1", "gpu"),
        ("cuda(type=a100,mem=1024M) & tasks=4 & nodes=2", "cuda(mem=1G, type=a100) & nodes=2 & tasks=4"),
    ],
)
def test_the_canonical_text(text: str, canonical: str) -> None:
    read = Requirement.parse(text)
    assert str(read) == canonical
    assert Requirement.parse(canonical) == read


@pytest.mark.parametrize(
    ("text", "position", "expected"),
    [
        ("", 0, "duration="),
        ("   ", 0, "duration="),
        ("cores=2", 0, "duration="),
        ("Duration=4h", 0, "duration="),
        ("duration 4h", 9, "'='"),
        ("duration=h", 9, "a time"),
        ("duration=4", 10, "unit"),
        ("duration=4 & cuda", 10, "unit"),
        ("duration=4weeks", 10, "unit"),
        ("duration=1h30", 13, "unit"),
        ("duration=0h30m", 9, "more than 0"),
        ("duration=4h4", 12, "unit"),
        ("duration=4h cuda", 12, "'&', '|' or the end"),
        ("duration=9999999d", 9, "too long"),
        ("duration=.5h", 9, "a time"),
        ("duration=1h & duration=2h", 14, "twice"),
        ("cpu", 3, "'('"),
        ("cpu()", 4, "cores= or mem="),
        ("cpu(cores=0)", 10, "from 1"),
        ("cpu(cores=1.5)", 10, "from 1"),
        ("cpu(cores=two)", 10, "a number"),
        ("cpu(cores=9999999)", 10, "from 1"),
        ("cpu(cores=2", 11, "')'"),
        ("cpu(cores=2,)", 12, "cores= or mem="),
        ("cpu(cores=2, cores=3)", 13, "twice"),
        ("cpu(mem=4G) & cpu(cores=1, mem=3G)", 27, "twice"),
        ("cpu(mem=4)", 9, "unit"),
        ("cpu(mem=4X)", 9, "unit"),
        ("cpu(mem=0G)", 8, "more than 0"),
        ("cpu(mem=99999999T)", 8, "too large"),
        ("cuda & gpu", 7, "twice"),
        ("cuda(cores=2)", 5, "mem= or type="),
        ("cuda(mem=4G, mem=5G)", 13, "twice"),
        ("cuda(type=)", 10, "the type of a GPU"),
        ("cuda(type=-a)", 10, "the type of a GPU"),
        ("cuda(type=a100", 14, "')'"),
        ("nodes", 5, "'='"),
        ("nodes=0", 6, "from 1"),
        ("tasks=x", 6, "a number"),
        ("nodes=2 & nodes=2", 10, "twice"),
        ("nodes=2 & tasks=3", 16, "no multiple of nodes=2"),
        ("tasks=3 & cuda & nodes=2", 23, "no multiple of nodes=2"),
        ("cuda*", 5, "a number"),
        ("cuda*0", 5, "from 1"),
        ("cuda |", 6, "duration="),
        ("cuda |  ", 6, "duration="),
        ("cuda || gpu", 6, "duration="),
        ("cuda & & gpu", 7, "duration="),
        ("cuda;", 4, "'&', '|' or the end"),
        ("é", 0, "duration="),
    ],
)
def test_a_wrong_text_is_refused_where_it_breaks(text: str, position: int, expected: str) -> None:
    with pytest.raises(RequirementError) as refused:
        Requirement.parse(text)
    assert refused.value.text == text
    assert refused.value.position == position
    assert expected in str(refused.value)


def test_the_error_shows_the_text_and_points_into_it() -> None:
    with pytest.raises(RequirementError) as refused:
        Requirement.parse("duration=4h & cpu(cores=x)")
    shown, pointer = str(refused.value).splitlines()
    assert shown == "duration=4h & cpu(cores=x)"
    assert pointer.startswith(" " * shown.index("x") + "^ expected")


def test_a_character_that_steers_a_terminal_is_not_printed() -> None:
    with pytest.raises(RequirementError) as refused:
        Requirement.parse("cuda \x1b[31m漢")
    shown, pointer = str(refused.value).splitlines()
    assert shown.isascii()
    assert pointer.index("^") == len("cuda ")


@pytest.mark.parametrize("given", [None, 5, b"cuda", ["cuda"]])
def test_another_thing_than_a_text_is_refused(given: object) -> None:
    with pytest.raises(RequirementError, match="a requirement is a text"):
        Requirement.parse(given)


def test_requirements_are_joined() -> None:
    cuda, long = Requirement.parse("cuda | gpu*2"), Requirement.parse("duration=1d | duration=2d")
    assert str(cuda | long) == "cuda | gpu*2 | duration=1d | duration=2d"
    assert [str(one) for one in (cuda & long).alternatives] == [
        "duration=1d & cuda",
        "duration=2d & cuda",
        "duration=1d & gpu*2",
        "duration=2d & gpu*2",
    ]
    with pytest.raises(RequirementError, match="twice"):
        long & Requirement.parse("duration=1h")


@pytest.mark.parametrize(
    "make",
    [
        Alternative,
        lambda: Alternative(duration_s=0),
        lambda: Alternative(duration_s=float("nan")),
        lambda: Alternative(cores=0),
        lambda: Alternative(cores=True),
        lambda: Alternative(memory_bytes=1.5),  # type: ignore[arg-type]
        lambda: Gpus("tpu"),
        lambda: Requirement(()),
    ],
)
def test_values_that_no_text_means_are_refused(make: object) -> None:
    with pytest.raises(RequirementError):
        make()  # type: ignore[operator]


requirements = st.lists(
    st.tuples(
        st.none() | st.floats(1e-6, LONGEST_S) | st.integers(1, LONGEST_S),
        st.integers(1, 10_000),
        st.none() | st.integers(1, LARGEST_BYTES),
        st.none()
        | st.builds(Gpus, st.sampled_from(KINDS), st.integers(1, 99), st.none() | st.integers(1, 1 << 50)),
    ),
    min_size=1,
    max_size=4,
).map(lambda rows: Requirement(tuple(Alternative(*row) for row in rows)))


@given(requirements)
def test_the_canonical_text_reads_back(requirement: Requirement) -> None:
    assert Requirement.parse(str(requirement)) == requirement


WORDS = [
    *("duration", "cpu", "cores", "mem", *KINDS, "=", "(", ")", ",", "*", "&", "|", " ", "  ", "\n"),
    *(
        "0",
        "1",
        "4",
        "12",
        "1.5",
        "0.0",
        ".",
        "h",
        "m",
        "s",
        "d",
        "G",
        "MiB",
        "kb",
        "t",
        "hours",
        "é",
        "\x1b",
        "_",
    ),
]


def random_text(random: Random) -> str:
    """A text of words of the language, some of them broken."""
    words = [random.choice(WORDS) for _ in range(random.randrange(12))]
    if random.random() < 0.3:
        words.insert(random.randrange(len(words) + 1), random.choice(string.printable))
    if random.random() < 0.5:
        words = ["duration", "=", "4", "h", "&", "cpu", "(", "cores", "=", "2", ")", *words]
    return "".join(words)


def read(text: str) -> Requirement | None:
    """Reads a text; what it may do, whatever the text, is checked here."""
    try:
        found = Requirement.parse(text)
    except RequirementError as error:
        refused = error
    else:
        assert Requirement.parse(str(found)) == found
        return found
    assert 0 <= refused.position <= len(text.rstrip())
    assert refused.text == text
    return None


@pytest.mark.parametrize(
    "count", [5_000, pytest.param(100_000, marks=pytest.mark.prove("as many as were asked for"))]
)
def test_random_texts_are_read_or_refused(count: int) -> None:
    random = Random(17)
    results = [read(random_text(random)) for _ in range(count)]
    assert sum(one is not None for one in results) > 20


@pytest.mark.hypothesis
@given(st.lists(st.sampled_from(WORDS), max_size=30).map("".join))
def test_any_text_is_read_or_refused(text: str) -> None:
    found = read(text)
    assert found is None or Requirement.parse(str(found)) == found


# -- hosts -----------------------------------------------------------------------------------------

BIG = Host(64, 256 * G, (Gpu("cuda", 80 * G), Gpu("cuda", 24 * G), Gpu("cuda", 24 * G)), 86400.0)
SMALL = Host(4, 8 * G, max_duration_s=3600.0)


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("cpu(cores=64)", True),
        ("cpu(cores=65)", False),
        ("cpu(mem=256G)", True),
        ("cpu(mem=257G)", False),
        ("duration=24h", True),
        ("duration=25h", False),
        ("cuda*3", True),
        ("gpu*4", False),
        ("cuda(mem=25G)", True),
        ("cuda(mem=25G)*2", False),
        ("rocm", False),
    ],
)
def test_a_host_fits_or_not(text: str, fits: bool) -> None:
    requirement = Requirement.parse(text)
    assert (requirement.match(BIG) is not None) is fits
    assert (unfit(requirement.alternatives[0], BIG) is None) is fits


def test_the_first_alternative_that_fits_is_taken() -> None:
    requirement = Requirement.parse("cuda*9 | cpu(cores=2) | duration=1h")
    match = requirement.match(SMALL)
    assert match is not None
    assert str(match.alternative) == "cpu(cores=2)"


def test_each_gpu_gets_the_smallest_device_that_fits_and_none_twice() -> None:
    devices = choose_devices(Gpus("cuda", 2, 20 * G), BIG)
    assert devices is not None
    assert devices.chosen == (1, 2)
    assert choose_devices(Gpus("cuda", 1, 30 * G), BIG) == ((0,), 50 * G)


def test_hosts_are_ranked_by_alternative_then_priority_then_waste() -> None:
    both = Requirement.parse("cuda | cpu(cores=2)")
    hosts = {
        "second alternative": Host(4, 8 * G, priority=99),
        "wasteful": Host(64, 256 * G, (Gpu("cuda", 80 * G),)),
        "fitting": Host(4, 8 * G, (Gpu("cuda", 8 * G),)),
        "preferred": Host(64, 256 * G, (Gpu("cuda", 80 * G),), priority=1),
    }
    ranked = sorted(hosts, key=lambda name: both.match(hosts[name]).score, reverse=True)  # type: ignore[union-attr]
    assert ranked == ["preferred", "fitting", "wasteful", "second alternative"]


def test_a_host_for_gpu_jobs_takes_no_others() -> None:
    host = Host(64, 256 * G, BIG.gpus, least_gpus=2)
    assert Requirement.parse("cpu(cores=2)").match(host) is None
    assert Requirement.parse("cuda").match(host) is None
    assert Requirement.parse("cuda*2").match(host) is not None
