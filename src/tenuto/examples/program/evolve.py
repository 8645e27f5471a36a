"""A search of programs: an agent changes a small repository, commit after commit, until its curve fits.

    tenuto evolve evolve.py

Needs git and nothing else. The agent, ``agent.py``, only stirs numbers; put the command of a coding agent in
its place. The best program is the branch ``tenuto/curve/best`` of ``repository``, every other a commit of its
own: ``git -C repository log --all --graph --oneline``.
"""

import subprocess
from pathlib import Path

from tenuto.search import Evolution, MapElites, Repository

HERE = Path(__file__).parent
TOTAL = 60


def commit_once(directory: Path) -> None:
    """Makes a git repository of the directory, as the one of your program is already."""
    if not (directory / ".git").exists():
        author = ["-c", "user.name=demo", "-c", "user.email=demo@localhost"]
        for words in (["init", "--quiet"], ["add", "."], [*author, "commit", "--quiet", "-m", "Begin"]):
            subprocess.run(["git", "-C", directory, *words], check=True)


if __name__ == "__main__":
    commit_once(HERE / "repository")
    result = Evolution(
        "curve",
        Repository(
            HERE / "repository",
            agent=["{python}", str(HERE / "agent.py")],
            evaluate=["{python}", "evaluate.py"],
            goal="Let curve(x) come as close to sin(x) as it can.",
            agent_s=60,
            evaluate_s=60,
        ),
        sampler=MapElites(cells=[12, 12], ranges=[(0, 1.5), (-0.3, 0.1)], measures=["slope", "bend"]),
        max_total_jobs=TOTAL,
        workdir=HERE / "workspace",
    ).run()
    if result.best is not None:
        print(f"off by {-result.best.objective:.3f}: git -C {HERE}/repository show tenuto/curve/best")
