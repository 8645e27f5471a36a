import json
from pathlib import Path

print("best", max(json.loads(path.read_text()) for path in Path("multirun").rglob("score.json")))
