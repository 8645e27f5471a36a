import optuna
import work

GRID = {"lr": work.LRS, "seed": work.SEEDS}
# later: GRID["momentum"] = [0.0]


def objective(trial):
    values = {name: trial.suggest_categorical(name, choices) for name, choices in GRID.items()}
    return work.evaluate(work.train(**values))


study = optuna.create_study(
    study_name="sweep",
    storage="sqlite:///study.db",
    direction="maximize",
    sampler=optuna.samplers.GridSampler(GRID, seed=0),
    load_if_exists=True,
)
study.optimize(objective, n_jobs=2, catch=ValueError)
print("best", study.best_value)
