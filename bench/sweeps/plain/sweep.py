import itertools

import wandb
import work

scores = []
for lr, seed in itertools.product(work.LRS, work.SEEDS):
    # later: the configuration has "momentum": 0.0
    with wandb.init(project="sweep", config={"lr": lr, "seed": seed}, mode="offline") as run:
        try:
            score = work.evaluate(work.train(lr, seed))
        except ValueError as error:
            run.summary["error"] = str(error)
            continue
        run.log({"score": score})
        scores.append(score)
print("best", max(scores))
