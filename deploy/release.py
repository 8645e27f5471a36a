"""The checklist of a release: `make release VERSION=0.1.0`.
Checks what can be checked, builds into `dist/`, and prints what a person does then; it tags nothing.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]


class Unready(Exception):
    """A step that the release does not pass; says what to do."""


def ran(*command: str, cwd: Path = ROOT) -> str:
    """What a command prints; raises `Unready` with the end of it if the command fails."""
    ended = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise Unready(f"`{' '.join(command)}` failed:\n{(ended.stdout + ended.stderr)[-2000:]}")
    return ended.stdout


def a_version(version: str) -> None:
    """The version is one, and there is no tag of it."""
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version):
        raise Unready(f"{version!r} is no version: make release VERSION=0.1.0")
    if ran("git", "tag", "--list", f"v{version}").strip():
        raise Unready(f"the tag v{version} exists already: choose the next version")


def a_clean_tree(version: str) -> None:
    """Everything is committed."""
    if changes := ran("git", "status", "--porcelain").strip():
        raise Unready(f"commit or remove these first:\n{changes}")


def a_change_log(version: str) -> None:
    """The change log has a section of the version, with its date."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if not re.search(rf"^## \[?{re.escape(version)}\]? - \d{{4}}-\d\d-\d\d$", text, re.MULTILINE):
        raise Unready(
            f"CHANGELOG.md has no line `## [{version}] - YYYY-MM-DD`: name and date its newest section"
        )


def the_checks(version: str) -> None:
    """Format, lint, types and fast tests pass; `make test` and `make prove` take a quiet machine."""
    ran("make", "check")


def the_site(version: str) -> None:
    """The documentation builds without a warning."""
    ran("make", "docs")


def the_packages(version: str) -> None:
    """A wheel and an sdist of that version, and the wheel alone works in a fresh environment."""
    with tempfile.TemporaryDirectory() as place:
        clone = Path(place, "clone")
        ran("git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone))
        ran("git", "tag", f"v{version}", cwd=clone)
        ran(sys.executable, "-m", "build", "--outdir", str(ROOT / "dist"), str(clone))
        venv.create(Path(place, "fresh"), with_pip=True)
        program = str(Path(place, "fresh", "bin", "python"))
        wheel = ROOT / "dist" / f"tenuto-{version}-py3-none-any.whl"
        ran(program, "-m", "pip", "install", "--quiet", str(wheel))
        if version not in (said := ran(program, "-m", "tenuto", "--version")):
            raise Unready(f"the wheel calls itself {said.strip()}")
        ran(program, "-m", "tenuto", "demo", "--dir", str(Path(place, "demo")))


STEPS: list[Callable[[str], None]] = [
    a_version,
    a_clean_tree,
    a_change_log,
    the_checks,
    the_site,
    the_packages,
]
THEN = """Then, by hand:
  1. python deploy/check_image.py, as root: the image, in a fresh root
  2. walk the twelve things of CONTRIBUTING.md with dist/tenuto-{0}-py3-none-any.whl on a fresh machine
  3. git tag --annotate v{0} --message 'Tenuto {0}' && git push --tags
  4. python -m twine upload dist/tenuto-{0}*
  5. put build/site where the documentation is served
  6. begin a section `## [Unreleased]` in CHANGELOG.md"""


def main(version: str) -> int:
    """Run every step until one fails; the exit code."""
    for step in STEPS:
        what = " ".join((step.__doc__ or "").split())
        try:
            step(version)
        except Unready as error:
            print(f"[ ] {what}\n{error}", file=sys.stderr)
            return 1
        print(f"[x] {what}", flush=True)
    print(THEN.format(version))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
