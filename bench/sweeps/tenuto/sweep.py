import work

from tenuto import Param, Task, experiment, grid


class Train(Task):
    lr: Param[float]
    seed: Param[int]
    # later: momentum: Param[float] = 0.0

    def execute(self):
        return work.train(self.lr, self.seed)


class Evaluate(Task):
    train: Param[Train]

    def execute(self):
        return work.evaluate(self.train.result())


if __name__ == "__main__":
    with experiment("workspace", "sweep", raise_on_failure=False) as xp:
        for train in grid(Train, {"lr": work.LRS, "seed": work.SEEDS}):
            Evaluate.C(train=train.submit()).submit()
    print("best", max(row["result"] for row in xp.results(Evaluate)))
