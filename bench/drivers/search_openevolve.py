"""Owns OpenEvolve's own loop for W9: `search_openevolve.py COUNT`, in an empty directory.

Its agent is a model that answers at once with a number: a server of this process, named by `api_base`.
"""

import asyncio
import http.server
import itertools
import json
import os
import sys
import threading

from account import Account
from openevolve import OpenEvolve
from openevolve.config import load_config

SLOTS = 2
PROGRAM = "# EVOLVE-BLOCK-START\nNUMBER = {}\n# EVOLVE-BLOCK-END\n"
EVALUATOR = "def evaluate(path):\n    return {'combined_score': 1.0}\n"
CONFIG = """
max_iterations: {count}
checkpoint_interval: 1000000
log_level: ERROR
random_seed: 1
diff_based_evolution: false
llm:
  api_base: http://127.0.0.1:{port}/v1
  api_key: none
  retries: 0
  models: [{{name: none, weight: 1.0}}]
evaluator: {{cascade_evaluation: false, parallel_evaluations: {slots}, enable_artifacts: false}}
"""


class Agent(http.server.BaseHTTPRequestHandler):
    """Answers each request with another program."""

    protocol_version = "HTTP/1.1"
    numbers = itertools.count(1)

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        program = PROGRAM.format(next(self.numbers))
        message = {"role": "assistant", "content": f"```python\n{program}```"}
        answer = {
            "id": "none",
            "object": "chat.completion",
            "created": 0,
            "model": "none",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        }
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


def main(count):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Agent)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    texts = {
        "program.py": PROGRAM.format(0),
        "evaluator.py": EVALUATOR,
        "config.yaml": CONFIG.format(count=count, port=server.server_port, slots=SLOTS),
    }
    for name, text in texts.items():
        with open(name, "w") as file:
            file.write(text)
    os.environ["OPENAI_API_KEY"] = "none"
    account = Account()
    config = load_config("config.yaml")
    loop = OpenEvolve("program.py", "evaluator.py", config=config, output_dir="out")
    asyncio.run(loop.run(iterations=count))
    account.stop()
    server.shutdown()
    asked = next(Agent.numbers) - 1
    assert asked >= count, asked
    account.report(evaluated=asked)


if __name__ == "__main__":
    main(int(sys.argv[1]))
