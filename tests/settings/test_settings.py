"""Owns the behaviour of settings: which source wins, where a value came from, what is refused and how."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.errors import InvalidSetting, SettingsError, UnknownSetting
from tenuto.settings import Settings, load_settings
from tenuto.settings.loader import key_lines
from tenuto.settings.tree import TABLE, ValueSource


class Place:
    """A home, a project and a set of variables, apart from those of the user that runs the tests."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.project = root / "project"
        self.deep = self.project / "a" / "b"
        self.deep.mkdir(parents=True)
        self.environ = {"HOME": str(self.home)}

    def user(self, text: str) -> Path:
        return self._write(self.home / ".config" / "tenuto" / "tenuto.toml", text)

    def own(self, text: str) -> Path:
        return self._write(self.project / "tenuto.toml", text)

    def pyproject(self, text: str) -> Path:
        return self._write(self.project / "pyproject.toml", text)

    def _write(self, path: Path, text: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def load(self, **arguments: object) -> Settings:
        dotted = {key.replace("__", "."): value for key, value in arguments.items()}
        return load_settings(dotted, start=self.deep, environ=self.environ)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_without_any_source_the_defaults_hold(place: Place) -> None:
    settings = place.load()
    assert settings == Settings()
    assert settings.slots >= 1
    assert {origin.source for _, _, origin in settings.items()} == {ValueSource.DEFAULT}


def test_each_source_wins_over_the_one_before(place: Place) -> None:
    seen = [place.load().max_retries]
    user = place.user("slots = 1\nmax_retries = 10\n")
    seen.append(place.load().max_retries)
    own = place.own("\n# ours\nmax_retries = 20\n")
    seen.append(place.load().max_retries)
    place.environ["TENUTO_MAX_RETRIES"] = "30"
    seen.append(place.load().max_retries)
    seen.append(place.load(max_retries=40).max_retries)
    assert seen == [3, 10, 20, 30, 40]
    settings = place.load(grace_s=1)
    assert settings.origin("slots") == (ValueSource.USER, f"{user}:1")
    assert str(settings.origin("max_retries")) == "TENUTO_MAX_RETRIES"
    assert settings.origin("grace_s") == (ValueSource.ARGUMENT, "grace_s")
    del place.environ["TENUTO_MAX_RETRIES"]
    assert str(place.load().origin("max_retries")) == f"{own}:3"


def test_pyproject_is_read_when_it_has_a_section(place: Place) -> None:
    file = place.pyproject('[project]\nname = "x"\n\n[tool.tenuto.history]\nmax_done = 7\n')
    settings = place.load()
    assert settings.history.max_done == 7
    assert settings.origin("history.max_done").place == f"{file}:5"


def test_a_pyproject_about_something_else_may_be_broken(place: Place) -> None:
    place.pyproject("this is not TOML")
    assert place.load() == Settings()


def test_two_files_of_one_project_are_refused(place: Place) -> None:
    place.own("slots = 1")
    place.pyproject("[tool.tenuto]\nslots = 2")
    with pytest.raises(SettingsError, match="keep one of them"):
        place.load()


def test_the_nearest_file_is_the_project(place: Place) -> None:
    place.own("slots = 1\nmax_retries = 1")
    (place.deep / "tenuto.toml").write_text("slots = 2")
    assert (place.load().slots, place.load().max_retries) == (2, 3)


def test_xdg_config_home_is_honoured_only_if_absolute(place: Place, tmp_path: Path) -> None:
    place.user("slots = 11")
    place.environ["XDG_CONFIG_HOME"] = "relative"
    assert place.load().slots == 11
    place.environ["XDG_CONFIG_HOME"] = str(tmp_path / "xdg")
    assert place.load().origin("slots").source is ValueSource.DEFAULT


def test_nested_settings_are_reached_by_two_underscores(place: Place) -> None:
    place.environ |= {"TENUTO_HISTORY__MAX_FAILED": "none", "TENUTO_ENVIRONMENT__ALLOW": "A, B_*"}
    settings = place.load()
    assert settings.history.max_failed is None
    assert settings.environment.allow == ("A", "B_*")


def test_an_empty_variable_and_an_argument_of_none_mean_not_given(place: Place) -> None:
    place.environ["TENUTO_SLOTS"] = " "
    assert place.load(slots=None).origin("slots").source is ValueSource.DEFAULT


@pytest.mark.parametrize(("text", "value"), [("yes", True), ("0", False), ("Off", False), ("TRUE", True)])
def test_flags_in_variables(place: Place, text: str, value: bool) -> None:
    place.environ["TENUTO_FAIL_RUN_ON_FAILED_JOB"] = text
    assert place.load().fail_run_on_failed_job is value


@pytest.mark.parametrize(
    ("given", "size"), [("4096", 4096), ("4K", 4096), ("2 GiB", 2 << 30), ("1tb", 1 << 40)]
)
def test_sizes_may_have_a_unit(place: Place, given: str, size: int) -> None:
    place.environ["TENUTO_MEMORY_BYTES"] = given
    assert place.load().memory_bytes == size


# -- what is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "max_retrys = 3",
            "tenuto.toml:1: max_retrys: there is no such setting; did you mean 'max_retries'?",
        ),
        ("\n[histroy]\nmax_done = 3", "tenuto.toml:3: histroy.max_done: .* mean 'history.max_done'"),
        ("max_done = 3", "did you mean 'history.max_done'"),
        ("[history]\nzzz = 3", "the settings are history.max_done, history.max_failed"),
        ("[workspaces.main]\npth = 'x'", "tenuto.toml:2: workspaces.main.pth: there is no such setting"),
        ("[unknown]", "tenuto.toml:1: unknown: there is no such setting"),
    ],
)
def test_an_unknown_key_names_file_line_key_and_suggests(place: Place, text: str, message: str) -> None:
    place.own(text)
    with pytest.raises(UnknownSetting, match=message):
        place.load()


@pytest.mark.parametrize(
    "text",
    [
        "slots = 0",
        "slots = true",
        "slots = 1.0",
        'slots = "2"',
        "slots = [1]",
        "[slots]\nx = 1",
        "history = 3",
        "workspaces = 3",
        "[workspaces]\nmain = 'x'",
        "[workspaces.main]\npath = 3",
        "[workspaces.main]\npath = ''",
        "grace_s = 0",
        "grace_s = nan",
        "walltime_s = inf",
        "walltime_s = 'none of it'",
        "log_bytes = '4 horses'",
        "dirty_git = 'maybe'",
        "durability = true",
        "fail_run_on_failed_job = 1",
        "[environment]\nallow = 'HOME'",
        "[environment]\nallow = ['*']",
        "[environment]\nallow = ['A B']",
        "default_workspace = 'nowhere'",
    ],
)
def test_a_value_of_the_wrong_type_is_refused(place: Place, text: str) -> None:
    file = place.own(text)
    with pytest.raises(InvalidSetting) as caught:
        place.load()
    assert str(file) in str(caught.value)


def test_the_message_has_file_key_expected_and_given(place: Place) -> None:
    file = place.own('launcher = "spawn"\n\nslots = "many"\n')
    with pytest.raises(InvalidSetting) as caught:
        place.load()
    assert str(caught.value) == f"{file}:3: slots: expected an integer, at least 1, but got 'many' (str)"
    place.own("")
    place.environ["TENUTO_SLOTS"] = "many"
    with pytest.raises(InvalidSetting, match=r"^TENUTO_SLOTS: expected an integer, .* got 'many'"):
        place.load()
    del place.environ["TENUTO_SLOTS"]
    with pytest.raises(InvalidSetting, match=r"^argument 'slots': expected"):
        place.load(slots=-1)


def test_unknown_variables_and_arguments_are_refused(place: Place) -> None:
    with pytest.raises(UnknownSetting, match=r"argument 'slot': .* did you mean 'slots'"):
        place.load(slot=1)
    place.environ["TENUTO_HISTORY_MAX_DONE"] = "3"
    with pytest.raises(UnknownSetting, match=r"TENUTO_HISTORY_MAX_DONE: .* mean 'history.max_done'"):
        place.load()


def test_a_file_that_is_not_toml_names_itself(place: Place) -> None:
    file = place.own("slots = \n")
    with pytest.raises(SettingsError, match=r"tenuto.toml is not valid TOML: .*line 1"):
        place.load()
    file.write_bytes(b"slots = '\xff'")
    with pytest.raises(SettingsError, match="not UTF-8"):
        place.load()


def test_settings_are_frozen() -> None:
    with pytest.raises(AttributeError):
        Settings().slots = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        Settings().workspaces["x"] = 1  # type: ignore[index]


# -- workspaces --------------------------------------------------------------------------------------


def test_workspaces_have_names(place: Place, tmp_path: Path) -> None:
    place.own(
        'default_workspace = "near"\n[workspaces.near]\npath = "results"\n'
        '[workspaces.far]\npath = "~/far"\n[workspaces.abs]\npath = "/data/x"\n'
    )
    settings = place.load()
    assert settings.workspace() == place.project / "results"
    assert settings.workspace("far") == place.home / "far"
    assert settings.workspace("abs") == Path("/data/x")
    assert settings.workspace("workdir") == Path("workdir")
    assert settings.workspace(tmp_path) == tmp_path
    assert settings.workspace("./far") == Path("far")


def test_a_variable_reaches_a_workspace_that_has_a_dash(place: Place) -> None:
    place.own('[workspaces.Big-Disk]\npath = "x"\n')
    place.environ["TENUTO_WORKSPACES__BIG_DISK__PATH"] = "/elsewhere"
    assert place.load().workspace() == Path("/elsewhere")
    assert list(place.load().workspaces) == ["Big-Disk"]


def test_no_workspace_at_all_says_what_to_write(place: Place) -> None:
    with pytest.raises(SettingsError, match="default_workspace"):
        place.load().workspace()


def test_a_default_that_is_not_declared_suggests(place: Place) -> None:
    place.own('default_workspace = "mian"\n[workspaces.main]\npath = "x"\n')
    with pytest.raises(InvalidSetting, match=r"tenuto.toml:1: .* did you mean 'main'"):
        place.load()


# -- the lines of a TOML file ------------------------------------------------------------------------


def test_lines_are_found_among_strings_comments_and_arrays() -> None:
    text = (
        '# slots = 1\ntext = """\nslots = 9\n[history]\n"""\nlist = [ # ]\n  "]", \'[\',\n  { a = "}" },\n]\n'
        "slots = 3\nodd.key = 1\n[ history ]\n'max_done' = 2 # x\n[[many]]\nx = 1\n"
    )
    assert key_lines(text) == {
        ("text",): 2,
        ("list",): 6,
        ("slots",): 10,
        ("odd", "key"): 11,
        ("history",): 12,
        ("history", "max_done"): 13,
        ("many",): 14,
        ("many", "x"): 15,
    }


@given(st.text(alphabet="ab=.[]{}\"'#\n\\ ", max_size=60))
def test_looking_for_lines_ends_whatever_the_text(text: str) -> None:
    assert all(1 <= line <= text.count("\n") + 1 for line in key_lines(text).values())


@given(st.dictionaries(st.sampled_from([row.variable for row in TABLE.values()]), st.text(max_size=12)))
def test_any_text_in_a_variable_is_taken_or_refused_by_name(variables: dict[str, str]) -> None:
    message = "none"
    try:
        load_settings(start=Path("/"), environ={"HOME": "/nonexistent", **variables})
    except SettingsError as error:
        message = str(error)
    assert message == "none" or any(name in message for name in variables)


def test_a_removed_working_directory_is_survived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    os.rmdir(gone)
    assert load_settings(environ={"HOME": str(tmp_path)}) == Settings()
