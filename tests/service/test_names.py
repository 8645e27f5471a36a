"""Which names an upload may have."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.service import names


@pytest.mark.parametrize(
    "good", ["run.sh", "a b.txt", "Größe.csv", "データ.bin", "-x", "a'b", ".hidden", "a" * 255]
)
def test_ordinary_names_pass(good: str) -> None:
    assert names.file_name(good.encode()) == (good, None)


@pytest.mark.parametrize(
    "bad",
    [
        b"", b".", b"..", b".tenuto", b"../x", b"/abs", b"a\\..\\b", b"a//b", b"a/",
        b"a/../b", b".Tenuto/x", b"a\0b", b"a\r\nb", b"x" * 256,
        "\u202egpj.sh".encode(), "zero\u200bwidth".encode(), b"\xff\xfe", b"CON", b"con.txt", b"lpt1",
        "LPT¹.txt".encode(), b"dot.", b"space ",
        "\u0085".encode(), "ö".encode() * 128,
    ],
)  # fmt: skip
def test_names_that_could_do_harm_are_refused(bad: bytes) -> None:
    assert names.file_name(bad)[1]


@given(st.text(max_size=300))
def test_a_name_that_passes_stays_below_its_directory(name: str) -> None:
    raw = name.encode("utf-8", "surrogatepass")
    taken, problem = names.file_name(raw)
    if problem is None:
        assert taken == name
        assert "\0" not in name
        for step in name.split("/"):
            assert step not in ("", ".", "..")
            assert len(step.encode()) <= 255
            assert names.is_packable(step)


def test_old_clients_have_their_folders_cut() -> None:
    assert names.file_name(b"some/where/run.sh", cut=True) == ("run.sh", None)
    assert names.file_name(b"../..", cut=True)[1]
    assert names.file_name(b"folder/", cut=True)[1]


@given(st.text(min_size=1, max_size=30))
def test_names_that_look_alike_are_folded(name: str) -> None:
    assert names.folded(unicodedata.normalize("NFD", name)) == names.folded(
        unicodedata.normalize("NFC", name)
    )
    assert names.folded(names.folded(name)) == names.folded(name)


def test_case_is_folded() -> None:
    assert names.folded("RUN.sh") == names.folded("run.SH")
    assert names.folded("straße") == names.folded("STRASSE")


@pytest.mark.parametrize(
    ("text", "number"),
    [("1", "1"), ("-5", "-5"), ("+7", "7"), ("007", "7"), (" 3 ", "3"), ("2147483647", "2147483647")],
)
def test_users_without_tokens_are_numbers(text: str, number: str) -> None:
    assert names.numbered_user(text) == number


@pytest.mark.parametrize("text", ["", "x", "1.5", "2147483648", "1e3", "٣", "1" * 5000, "0x10", "1 2"])
def test_other_users_are_none(text: str) -> None:
    assert names.numbered_user(text) is None


@pytest.mark.parametrize("text", ["ada", "Ada.Lovelace@example.org", "u+1-2_3", "7"])
def test_users_of_tokens(text: str) -> None:
    assert names.is_user(text)


@pytest.mark.parametrize("text", ["", ".x", "a b", "ä", "a" * 65, "a\n", "-a"])
def test_a_text_that_is_no_user_is_seen(text: str) -> None:
    assert not names.is_user(text)


def test_idempotency_keys() -> None:
    assert names.is_idempotency_key("a b-c")
    assert not names.is_idempotency_key("")
    assert not names.is_idempotency_key("x" * 256)
    assert not names.is_idempotency_key("tab\t")
    assert not names.is_idempotency_key("é")
