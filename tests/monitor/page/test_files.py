"""What the files of the page promise before a browser sees them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from tenuto.monitor.web.app import PAGE

SCRIPTS = sorted(PAGE.glob("*.js"))
MAKES_TEXT = re.compile(
    r"createTextNode|\.textContent = |innerHTML|outerHTML|insertAdjacent|document\.write|DOMParser"
)


def test_only_dom_puts_text_into_the_document() -> None:
    found = {path.name for path in SCRIPTS if MAKES_TEXT.search(path.read_text())}
    assert found == {"dom.js"}
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|DOMParser", (PAGE / "dom.js").read_text())


def test_no_script_comes_from_elsewhere_and_there_is_not_too_much_of_it() -> None:
    for path in SCRIPTS:
        imported = re.findall(r'(?:from|import) "([^"]+)"', path.read_text())
        assert all(re.fullmatch(r"\./[a-z]+\.js", name) for name in imported), (path.name, imported)
    assert "//" not in re.sub(r"<!doctype html>", "", (PAGE / "index.html").read_text())
    assert sum(len(path.read_text().splitlines()) for path in SCRIPTS) < 4_700


def test_types_hold(npm: Callable[[str], Path], tmp_path: Path) -> None:
    compiler = npm("typescript") / "bin" / "tsc"
    options = {
        "allowJs": True, "checkJs": True, "strict": True, "noEmit": True, "noUncheckedIndexedAccess": True,
        "noUnusedLocals": True, "target": "esnext", "module": "esnext", "moduleResolution": "bundler",
        "lib": ["esnext", "dom", "dom.iterable"], "types": [],
    }  # fmt: skip
    project = tmp_path / "tsconfig.json"
    project.write_text(json.dumps({"compilerOptions": options, "include": [f"{PAGE}/*"]}))
    done = subprocess.run(
        [str(compiler), "-p", str(project)], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout
