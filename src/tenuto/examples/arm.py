"""A search: a robot's arm learns to reach every place around it, each with as little bending as it can.

    tenuto evolve arm.py

Pure Python, no package needed. The arm has eight joints. Where its hand ends up (x, y) are the measures: the
archive keeps, for every place, the most comfortable pose that reaches it. Run it again with a larger TOTAL,
and it continues; Ctrl-C leaves it, and nothing is lost.
"""

import math
from pathlib import Path

from tenuto import Param, Task
from tenuto.search import Evolution, IsoLine, MapElites, Outcome, Real

JOINTS = 8
TOTAL = 1500


class Pose(Task):
    """One pose of the arm."""

    angles: Param[list[float]]

    def execute(self) -> Outcome:
        direction, x, y = 0.0, 0.0, 0.0
        for angle in self.angles:
            direction += angle
            x += math.cos(direction) / JOINTS
            y += math.sin(direction) / JOINTS
        mean = sum(self.angles) / JOINTS
        bending = math.sqrt(sum((angle - mean) ** 2 for angle in self.angles) / JOINTS)
        return Outcome(objective=1 - bending / math.pi, measures=[x, y])


if __name__ == "__main__":
    result = Evolution(
        "arm",
        Pose,
        space={"angles": Real(-math.pi, math.pi, shape=JOINTS)},
        sampler=MapElites(cells=[32, 32], ranges=[(-1, 1), (-1, 1)], variation=IsoLine(0.02, 0.2)),
        max_total_jobs=TOTAL,
        workdir=Path(__file__).parent / "workspace",
    ).run()
    places = result.archive.elites() if result.archive else []
    print(f"the arm reaches {len(places)} places")
