"""Declares two tasks, sweeps a parameter, and shows what makes identities differ."""

from pathlib import Path

from tenuto import Config, Meta, Param, PathGenerator, ResumableTask, Task, explain, field, grid, identity


class Dataset(Config):
    """Points on a noisy line."""

    size: Param[int]
    noise: Param[float] = 0.1


class Train(ResumableTask):
    """Fits a line by gradient descent."""

    data: Param[Dataset]
    lr: Param[float]
    epochs: Param[int] = 10
    checkpoint: Meta[Path] = field(default_factory=PathGenerator("model.json"))


class Evaluate(Task):
    """Measures a fitted line."""

    model: Param[Train]


if __name__ == "__main__":
    runs = grid(Train, {"lr": [0.1, 0.01], "epochs": range(10, 31, 10)}, data=Dataset.C(size=100))
    print(f"{len(runs)} tasks:")
    for run in runs:
        print(f"  {identity(run)[:12]}  {run.tags()}")
    print(f"\nThe first and the last have {explain(runs[0], runs[-1])}")
    print("\nepochs=10 is the default, so a task that does not mention it is the same task:")
    print(f"  {identity(Train.C(data=Dataset.C(size=100), lr=0.1))[:12]}")
