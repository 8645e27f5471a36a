"""Owns the settings of the doors: named tables, lists, URLs with passwords, variables of other programs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.errors import InvalidSetting, SettingsError, UnknownSetting
from tenuto.settings import Settings, Url, load_settings
from tenuto.settings.loader import foreign_variables
from tenuto.settings.search import SEARCH_SECTIONS
from tenuto.settings.service import NODE_SECTIONS, SERVER_SECTIONS
from tenuto.settings.tree import NAMED_TABLE, SECTIONS, TABLE, ValueSource, declared
from tenuto.settings.urls import without_secrets


def loaded(tmp_path: Path, text: str = "", foreign: tuple[str, ...] = (), **environ: str) -> Settings:
    (tmp_path / "tenuto.toml").write_text(text, encoding="utf-8")
    return load_settings(start=tmp_path, environ={"HOME": "/nonexistent", **environ}, foreign=foreign)


# -- what the design pages promise -------------------------------------------------------------------

DEFAULTS = {
    "service": """host=127.0.0.1 port=5000 data=data database=db.sqlite auth=none compat=hybrid
        max_age_s=172800.0 forget_after_s=7776000.0 max_upload_bytes=4294967296 max_parts=1000
        max_result_bytes=17179869184 min_free_bytes=268435456
        hosts=() prefix=None trusted_proxies=() queued_per_user=1000
        stored_bytes_per_user=None connections_per_user=100 callback_hosts=() callback_secret_file=None
        rate_per_s=50.0 burst=200
        connections=4000 send_for_s=60.0 retrieve_for_s=3600.0
        terminate_wait_s=5.0
        poll_s=0.5""",
    "search": """max_unfinished_jobs=None max_total_jobs=None schedule_batch_size=None dispatch_batch_size=64
        poll_interval_s=1.0 worker_poll_s=2.0 lease_s=45.0
        max_attempts=3 walltime_s=None default_priority=0 seed_population=16 inspirations=3
        agent_slots=4""",
    "database": "url=None",
    "queue": "url=None namespace=tenuto",
    "clusters.slurm": """dialect=slurm partition=None account=None qos=None constraint=None time_s=None
        cpus=1 memory_bytes=None
        gpus=0 extra=None setup=None login_shell=False wrap=None python=None max_jobs=1000
        array_size=1000 reuse_s=1.0 poll_s=5.0 beat_s=30.0 pilots=0 pilot_cpus=8
        pilot_time_s=3600.0 pilot_idle_s=60.0 hosts=None submit=None submit_id=None later=None full=None
        refused=None options=None variables=None list=None end=None states=None cancel=None signal=None
        largest_array=None limit_words=None throttle=None partitions=None""",
}


@pytest.mark.parametrize("section", DEFAULTS)
def test_the_defaults_of_a_door_are_those_it_was_designed_with(section: str) -> None:
    name = section.removeprefix("clusters.")
    held = Settings().cluster(name) if name != section else getattr(Settings(), section)
    found = {one.name: str(getattr(held, one.name)) for one in dataclasses.fields(held)}
    assert found == dict(pair.split("=") for pair in DEFAULTS[section].split())


def test_every_setting_of_every_table_can_be_given_by_its_variable() -> None:
    for row in [*TABLE.values(), *NAMED_TABLE.values()]:
        key = row.variable.removeprefix("TENUTO_").lower().replace("__", ".")
        assert declared(key) == row


def test_slurm_is_a_cluster_that_has_a_short_name(tmp_path: Path) -> None:
    short = loaded(tmp_path, '[slurm]\npartition = "a"\n')
    long = loaded(tmp_path, '[clusters.slurm]\npartition = "a"\n')
    assert short.clusters == long.clusters
    assert short.cluster("slurm").partition == "a"
    with pytest.raises(InvalidSetting, match=r"\[slurm\] is \[clusters.slurm\]: keep one of them"):
        loaded(tmp_path, '[slurm]\npartition = "a"\n[clusters.slurm]\nqos = "b"\n')


def test_a_cluster_is_chosen_by_its_name(tmp_path: Path) -> None:
    text = 'launcher = "lab"\n[clusters.lab]\ndialect = "ssh"\nhosts = ["a:4"]\n'
    settings = loaded(tmp_path, text)
    assert (settings.launcher, settings.cluster("lab").hosts) == ("lab", ("a:4",))
    with pytest.raises(
        InvalidSetting, match=r"expected .* or of a plug-in.*clusters of the settings are lab$"
    ):
        loaded(tmp_path, text.replace('"lab"', '"lap"'))
    with pytest.raises(
        UnknownSetting, match=r"slurm.queue: .*the settings are slurm.dialect, slurm.partition, "
    ):
        loaded(tmp_path, '[slurm]\nqueue = "long"\n')
    for taken in ("direct", "spawn", "warm", "local", "auto"):
        with pytest.raises(InvalidSetting, match="a launcher of this machine has that name"):
            loaded(tmp_path, f"[clusters.{taken}]\ncpus = 2\n")


def test_words_of_a_cluster_are_tables_and_texts(tmp_path: Path) -> None:
    text = '[clusters.x]\ndialect = "generic"\nsubmit = "qsub {script}"\n'
    settings = loaded(tmp_path, text + '[clusters.x.variables]\nindex = "I"\nfirst = 1\n')
    assert settings.cluster("x").variables == {"index": "I", "first": "1"}
    with pytest.raises(InvalidSetting, match="a table of texts"):
        loaded(tmp_path, text + "[clusters.x.variables]\nindex = [1]\n")


# -- named tables ------------------------------------------------------------------------------------


def test_services_and_nodes_have_names(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        '[services.dock]\nnodes = ["left", "http://10.0.0.7:9000/"]\npaths = ["here", "/opt/x"]\n'
        'memory_bytes = "4G"\n'
        '[services.plain]\n[nodes.left]\nurl = "https://left.example.org"\ntoken_file = "left.token"\n',
    )
    dock = settings.services["dock"]
    assert dock.nodes == ("left", Url("http://10.0.0.7:9000"))
    assert dock.paths == (tmp_path / "here", Path("/opt/x"))
    assert (dock.memory_bytes, dock.max_runs, dock.network) == (4 << 30, 10, False)
    assert settings.services["plain"].runs_per_user == 5
    assert settings.nodes["left"].token_file == tmp_path / "left.token"
    assert settings.origin("services.dock.paths").place.endswith("tenuto.toml:3")
    assert {"services.plain.max_runs", "nodes.left.url"} <= {key for key, _, _ in settings.items()}


def test_a_variable_reaches_a_service_that_a_file_named(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        "[services.My-Tool]\nmax_runs = 1\n",
        TENUTO_SERVICES__MY_TOOL__RUNS_PER_USER="7",
        TENUTO_SERVICES__OTHER__PATHS="/a, /b",
    )
    assert (settings.services["My-Tool"].max_runs, settings.services["My-Tool"].runs_per_user) == (1, 7)
    assert settings.services["other"].paths == (Path("/a"), Path("/b"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[nodes.left]\ntoken_file = 'x'", r"tenuto.toml:\d: nodes.left.url is missing"),
        ("[nodes.left]", r"tenuto.toml:1: nodes.left.url is missing"),
        (
            "[services.a]\nnodes = ['lfet']\n[nodes.left]\nurl='http://x'",
            "tenuto.toml:2: .*did you mean 'left'",
        ),
        ("[services.a]\nnodes = ['ftp://x']", "tenuto.toml:2: services.a.nodes: expected a list of URLs"),
        ("[service]\nport = 70000", "expected an integer, at least 0, at most 65535"),
        ("[service]\ndatabase = 'postgrsql://u:pw@h/d'", "expected a path, or a URL"),
        ("[node]\ndatabase = 'postgresql://u:pw@h/d'", "tenuto.toml:2: node.database: expected a path"),
        ('[slurm]\nextra = "--x \'y"', "expected words as in a shell"),
        ("[search]\nmax_attempts = 0", "tenuto.toml:2: search.max_attempts"),
        ("services = 3", "expected a table"),
    ],
)
def test_a_bad_value_names_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidSetting, match=message) as caught:
        loaded(tmp_path, text)
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[services.a]\nmax_run = 3", "did you mean 'services.a.max_runs'"),
        ("[serivce]\nport = 3", "did you mean 'service.port'"),
        ("[search]\nzzz = 3", "the settings are search.max_unfinished_jobs, "),
        ("zzzz = 3", "the settings are default_workspace, .* search, .* services"),
    ],
)
def test_an_unknown_name_is_refused_with_a_suggestion(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UnknownSetting, match=message):
        loaded(tmp_path, text)


def test_lists_and_words(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        "[slurm]\nextra = \"--licenses=a:2 --comment='two words'\"\nwrap = ['apptainer', 'exec']\n"
        'setup = """module load x\nexport A=1"""\n[service]\nhosts = ["a.example", "b.example"]\n',
    )
    assert settings.cluster("slurm").extra == ("--licenses=a:2", "--comment=two words")
    assert settings.cluster("slurm").wrap == ("apptainer", "exec")
    assert settings.cluster("slurm").setup == "module load x\nexport A=1"
    assert settings.service.hosts == ("a.example", "b.example")


# -- URLs and their passwords ------------------------------------------------------------------------

HIDDEN = ["s3cret", "s3cr/et", "s3@cret", "s3cr#et?x", "a:s3cret"]


@pytest.mark.parametrize("password", HIDDEN)
def test_a_password_is_revealed_only_on_request(tmp_path: Path, password: str) -> None:
    whole = f"postgresql://user:{password}@db.example.org/jobs?sslpassword=s3two&host=/run/db"
    settings = loaded(tmp_path, f'[database]\nurl = "{whole}"\n[service]\ndatabase = "{whole}"\n')
    assert settings.database.url is not None
    assert settings.database.url.reveal() == whole
    for shown in (repr(settings), str(settings.database.url), f"{settings.service.database}"):
        assert "s3" not in shown
        assert "db.example.org/jobs" in shown


@pytest.mark.parametrize("password", HIDDEN)
def test_no_error_shows_a_password(tmp_path: Path, password: str) -> None:
    odd = f"mysql://user:{password}@db.example.org/jobs"
    for text in (f'[database]\nurl = "{odd}"', f'slots = "{odd}"', f'services = "{odd}"'):
        with pytest.raises(InvalidSetting) as caught:
            loaded(tmp_path, text)
        assert "s3" not in str(caught.value).replace(str(tmp_path), "")
    with pytest.raises(InvalidSetting, match="DATABASE_URL") as caught:
        loaded(tmp_path, "", SEARCH_SECTIONS, DATABASE_URL=odd)
    assert "s3" not in str(caught.value).replace(str(tmp_path), "")


@given(st.text(alphabet="ab:/@?#&=%", max_size=8), st.text(alphabet="xyz", min_size=4, max_size=6))
def test_whatever_a_password_is_made_of_it_is_hidden(odd: str, word: str) -> None:
    assert word not in without_secrets(f"redis://:{odd}{word}{odd}@host/0")


def test_a_database_is_a_path_or_a_url(tmp_path: Path) -> None:
    assert loaded(tmp_path).service.database == Path("db.sqlite")
    assert loaded(tmp_path, "[service]\ndatabase = 'x.db'").service.database == tmp_path / "x.db"
    url = loaded(tmp_path, "[service]\ndatabase = 'postgresql://h/d'").service.database
    assert isinstance(url, Url)
    assert url.scheme == "postgresql"


# -- variables of other programs ---------------------------------------------------------------------


def test_a_foreign_variable_ranks_between_the_files_and_ours(tmp_path: Path) -> None:
    text = "[service]\nport = 1\nmax_age_s = 2\ndata = 'd'\n"
    settings = loaded(tmp_path, text, SERVER_SECTIONS, PORT="3", MAX_AGE="4", TENUTO_SERVICE__PORT="5")
    assert (settings.service.port, settings.service.max_age_s) == (5, 4.0)
    assert settings.origin("service.max_age_s") == (ValueSource.FOREIGN, "MAX_AGE")
    assert str(settings.origin("service.max_age_s")) == "MAX_AGE"
    assert settings.service.data == tmp_path / "d"


def test_a_foreign_variable_is_read_by_the_program_it_is_meant_for(tmp_path: Path) -> None:
    environ = {
        "PORT": "8000",
        "DB_PATH": "x.db",
        "DATA_PATH": "/d",
        "DATABASE_URL": "no url",
        "SERVICE_A_MAX_RUNS": "x",
    }
    assert loaded(tmp_path, **environ) == Settings()
    node = loaded(tmp_path, "", NODE_SECTIONS, **environ)
    assert (node.node.port, node.node.data, node.node.database) == (8000, Path("/d"), tmp_path / "x.db")
    assert node.service == Settings().service
    with pytest.raises(InvalidSetting, match=r"^DATABASE_URL: expected a URL"):
        loaded(tmp_path, "", SEARCH_SECTIONS, **environ)


def test_the_variables_of_a_search(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        "",
        SEARCH_SECTIONS,
        SCHEDULER_MAX_UNFINISHED_JOBS="4",
        SCHEDULER_MAX_TOTAL_JOBS="100",
        SCHEDULER_POLL_INTERVAL_SECONDS="0.5",
        TASKS_WORKER_TIME_LIMIT_SECONDS="60",
        MAPELITES_SAMPLER_DEFAULT_PRIORITY="-1",
        DATABASE_URL="postgresql+psycopg://u:p@h/d",
        TASKS_REDIS_URL="redis://localhost:6379/0",
    )
    search = settings.search
    assert (search.max_unfinished_jobs, search.max_total_jobs, search.poll_interval_s) == (4, 100, 0.5)
    assert (search.walltime_s, search.default_priority) == (60.0, -1)
    assert settings.queue.url == Url("redis://localhost:6379/0")
    assert settings.origin("database.url").place == "DATABASE_URL"


def test_the_variables_of_a_service_make_one_node(tmp_path: Path) -> None:
    environ = {
        "SERVICE_MY_TOOL_UPLOAD_URL": "http://node:9000/submit",
        "SERVICE_MY_TOOL_DOWNLOAD_URL": "http://node:9000/retrieve/",
        "SERVICE_MY_TOOL_TERMINATE_URL": "http://node:9000/kill",
        "SERVICE_MY_TOOL_RUNS_PER_USER": "2",
        "SERVICE_MY_TOOL_MAX_RUNS": "3",
        "SERVICE_MY_TOOL_COLOUR": "blue",
    }
    settings = loaded(tmp_path, "", SERVER_SECTIONS, **environ)
    tool = settings.services["my_tool"]
    assert (tool.nodes, tool.runs_per_user, tool.max_runs) == ((Url("http://node:9000"),), 2, 3)
    assert list(settings.services) == ["my_tool"]
    (warning,) = settings.warnings
    assert warning.startswith("SERVICE_MY_TOOL_COLOUR is ignored")
    ours = {"TENUTO_SERVICES__MY_TOOL__NODES": "https://other"}
    assert loaded(tmp_path, "", SERVER_SECTIONS, **environ, **ours).services["my_tool"].nodes == (
        Url("https://other"),
    )
    environ["SERVICE_MY_TOOL_DOWNLOAD_URL"] = "http://elsewhere:9000/retrieve"
    with pytest.raises(InvalidSetting, match="SERVICE_MY_TOOL_UPLOAD_URL are not of one node"):
        loaded(tmp_path, "", SERVER_SECTIONS, **environ)


@given(
    st.dictionaries(
        st.sampled_from([name.replace("<NAME>", "A") for name, _ in foreign_variables()]),
        st.text(max_size=12),
    )
)
def test_any_text_in_a_foreign_variable_is_taken_or_refused_by_name(variables: dict[str, str]) -> None:
    sections = (*SERVER_SECTIONS, *NODE_SECTIONS, *SEARCH_SECTIONS)
    assert set(sections) <= {*SECTIONS, "services"}
    message = ""
    try:
        load_settings(start=Path("/"), environ={"HOME": "/nonexistent", **variables}, foreign=sections)
    except SettingsError as error:
        message = str(error)
    assert not message or any(name in message for name in variables)
