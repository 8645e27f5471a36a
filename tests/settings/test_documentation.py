"""Owns the promise that docs/settings.md lists every setting as it is declared.

After a change to the table, run this file as a script and commit the page with the change.
"""

from __future__ import annotations

from pathlib import Path

from tenuto.settings.declaration import Declared
from tenuto.settings.tree import NAMED_TABLE, TABLE

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"
BEGIN, END = "<!-- begin: settings -->", "<!-- end: settings -->"
REGENERATE = ".venv/bin/python tests/settings/test_documentation.py"


def line(row: Declared) -> str:
    default = row.default if "`" in row.default or not row.default else f"`{row.default}`"
    meaning = f"{row.meaning} Also `{row.foreign}`." if row.foreign else row.meaning
    cells = (f"`{row.key}`", row.kind.name, default, meaning)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def table() -> str:
    head = "| Setting | Kind | Default | Meaning |\n|---|---|---|---|\n"
    return head + "".join(map(line, [*TABLE.values(), *NAMED_TABLE.values()]))


def page_with(text: str, content: str) -> str:
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{content}{END}{after}"


def test_the_page_lists_the_settings_as_declared() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.count(BEGIN) == text.count(END) == 1
    assert text == page_with(text, table()), f"docs/settings.md is stale: {REGENERATE}"


def test_every_setting_says_what_it_means() -> None:
    assert all(row.meaning.endswith(".") for row in [*TABLE.values(), *NAMED_TABLE.values()])


if __name__ == "__main__":
    PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8"), table()), encoding="utf-8")
    print(f"wrote {len(TABLE) + len(NAMED_TABLE)} settings to {PAGE.name}")
