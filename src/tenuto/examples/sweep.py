"""A sweep: trains small neural networks on two half moons, evaluates each, and compares them.

    tenuto run sweep.py

Pure Python, no package needed. Change a value in GRID and run it again: only new jobs run.
"""

import json
import math
import random
from pathlib import Path

from tenuto import (
    Config,
    JobState,
    Meta,
    Param,
    PathGenerator,
    ResumableTask,
    Task,
    experiment,
    field,
    grid,
    progress,
    stop_tags,
)

GRID: dict[str, list[float]] = {"hidden": [2, 16], "lr": [0.001, 0.01, 0.1, 0.5]}
Point = tuple[float, float, int]


class Moons(Config):
    """Two interleaved half moons, with noise: the label says which moon a point is of."""

    size: Param[int]
    noise: Param[float] = 0.2
    seed: Param[int] = 0

    def points(self) -> list[Point]:
        """The data, the same on every machine."""
        chance = random.Random(self.seed)
        found = []
        for number in range(self.size):
            moon, angle = number % 2, math.pi * chance.random()
            x = math.cos(angle) if moon else 1 - math.cos(angle)
            y = math.sin(angle) if moon else 0.5 - math.sin(angle)
            found.append((x + chance.gauss(0, self.noise), y + chance.gauss(0, self.noise), moon))
        return found


class Train(ResumableTask):
    """Trains a network with one hidden layer by stochastic gradient descent."""

    data: Param[Moons]
    lr: Param[float]
    hidden: Param[int]
    epochs: Param[int] = 100
    checkpoint: Meta[Path] = field(default_factory=PathGenerator("model.json"))

    def execute(self) -> dict[str, float]:
        """Continues from the checkpoint, if an earlier try of this job left one."""
        points, chance = self.data.points(), random.Random(1)
        first, units = 0, [[chance.gauss(0, 1) for _ in range(4)] for _ in range(self.hidden)]
        if self.checkpoint.exists():
            first, units = json.loads(self.checkpoint.read_text())
        loss = math.nan
        for epoch in range(first, self.epochs):
            random.Random(epoch).shuffle(points)
            loss = sum(self.step(units, point) for point in points) / len(points)
            self.keep(epoch + 1, units)
            progress((epoch + 1) / self.epochs, desc=f"epoch {epoch + 1}, loss {loss:.3f}")
        print(f"trained {self.epochs} epochs, loss {loss:.4f}")
        return {"loss": round(loss, 4)}

    def step(self, units: list[list[float]], point: Point) -> float:
        """One step of gradient descent; a unit is its weights of x and y, its bias, and its weight."""
        x, y, label = point
        active = [math.tanh(u[0] * x + u[1] * y + u[2]) for u in units]
        output = 1 / (1 + math.exp(-sum(a * u[3] for a, u in zip(active, units, strict=True))))
        error = output - label
        for a, unit in zip(active, units, strict=True):
            inner = error * unit[3] * (1 - a * a)
            unit[0] -= self.lr * inner * x
            unit[1] -= self.lr * inner * y
            unit[2] -= self.lr * inner
            unit[3] -= self.lr * error * a
        return -math.log(max(output if label else 1 - output, 1e-12))

    def keep(self, epoch: int, units: list[list[float]]) -> None:
        """Writes the checkpoint whole or not at all, for the job may be killed at any moment."""
        part = self.checkpoint.with_suffix(".part")
        part.write_text(json.dumps([epoch, units]))
        part.replace(self.checkpoint)


class Evaluate(Task):
    """Counts how many points of other data a trained network gets right."""

    model: Param[Train]
    data: Param[Moons]

    def execute(self) -> float:
        """The accuracy."""
        _, units = json.loads(self.model.checkpoint.read_text())
        right = 0
        points = self.data.points()
        for x, y, label in points:
            output = sum(math.tanh(u[0] * x + u[1] * y + u[2]) * u[3] for u in units)
            right += (output > 0) == bool(label)
        return right / len(points)


class Compare(Task):
    """Ranks all evaluations, once they are done."""

    evaluations: Param[list[Evaluate]]

    def execute(self) -> list[tuple[float, int, float]]:
        """Accuracy, hidden units and learning rate of each, the best first."""
        rows = [(one.result(), one.model.hidden, one.model.lr) for one in self.evaluations]
        return sorted(rows, reverse=True)


if __name__ == "__main__":
    here = Path(__file__).parent
    with experiment(here / "workspace", "sweep") as xp:
        trainings = [training.submit() for training in grid(Train, GRID, data=Moons.C(size=1500))]
        unseen = Moons.C(size=1000, seed=1)
        evaluations = [Evaluate.C(model=training, data=unseen).submit() for training in trainings]
        compare = Compare.C(evaluations=[stop_tags(one) for one in evaluations]).submit()  # about all of them
        xp.wait()

    if compare.job.state is JobState.DONE:
        print("accuracy  hidden     lr")
        for accuracy, hidden, lr in compare.result():
            print(f"{accuracy:8.1%}  {hidden:6}  {lr:5}")
