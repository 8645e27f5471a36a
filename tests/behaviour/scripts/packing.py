"""The search of the behaviour tests: few candidates, told in order, some of which fail."""

from tenuto import Param, Task
from tenuto.search import Evolution, MapElites, Outcome, Real


class Pack(Task):
    x: Param[float]
    y: Param[float]

    def execute(self):
        print(f"packs {self.x}")
        if self.x < 0.25:
            raise ValueError("too small")
        return Outcome(objective=self.x + self.y, measures=[self.x, self.y], cost=0.5)


if __name__ == "__main__":
    Evolution(
        "packing",
        Pack,
        space={"x": Real(0, 1), "y": Real(0, 1)},
        sampler=MapElites(cells=[3, 3], ranges=[(0, 1), (0, 1)]),
        max_total_jobs=8,
        max_unfinished_jobs=1,
        reproducible=True,
        seed=3,
    ).run()
