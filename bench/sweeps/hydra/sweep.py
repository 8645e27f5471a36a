import json
from dataclasses import dataclass
from pathlib import Path

import hydra
import work
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig


@dataclass
class Config:
    lr: float = 0.1
    seed: int = 0
    # later: momentum: float = 0.0


ConfigStore.instance().store(name="config", node=Config)


@hydra.main(version_base=None, config_name="config")
def main(config: Config) -> None:
    score = work.evaluate(work.train(config.lr, config.seed))
    Path(HydraConfig.get().runtime.output_dir, "score.json").write_text(json.dumps(score))


if __name__ == "__main__":
    main()
