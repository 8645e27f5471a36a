"""An agent that knows no better than to stir a number: it stands where a coding agent would.

An agent runs in a checkout of the program, reads the prompt at EVOLVE_PROMPT, changes files, and may leave a
report: its cost, and a line about its change.
"""

import json
import os
import random
import re
from pathlib import Path

chance = random.Random(os.environ["EVOLVE_SEED"])
program = Path("curve.py")
text = program.read_text()
numbers = list(re.finditer(r"-?\d+\.\d+", text))
chosen = chance.choice(numbers)
number = float(chosen.group()) + chance.gauss(0, 0.1)
program.write_text(f"{text[: chosen.start()]}{number:.4f}{text[chosen.end() :]}")

report = {"cost": 0.001, "notes": f"Change {chosen.group()} to {number:.4f}"}
Path(os.environ["EVOLVE_REPORT"]).write_text(json.dumps(report))
