"""Renews the parts of the pages that are drawn from the code: `python docs/generate.py`.
A test fails while a page is stale.
"""

from pathlib import Path

from tenuto.lifecycle import diagram as lifecycle
from tenuto.monitor import diagram as monitor
from tenuto.monitor.tui.keys import keys_table
from tenuto.workspace import derive_diagram as workspace

PAGES = {
    "lifecycle.md": {
        "states": lifecycle.states_table,
        "transitions diagram": lifecycle.transitions_diagram,
        "transitions": lifecycle.transitions_table,
        "failures": lifecycle.failures_table,
        "transient": lifecycle.transient_table,
        "derive": workspace.derive_table,
    },
    "monitor.md": {
        "answers": monitor.answers_table,
        "values": monitor.shapes_table,
        "keys": keys_table,
    },
    "service.md": {
        "service states": lifecycle.service_states_table,
        "service diagram": lifecycle.service_diagram,
        "payload states": lifecycle.payload_states_table,
        "payload diagram": lifecycle.payload_diagram,
    },
}


def fresh(page: str, text: str) -> str:
    """The page's text as it should be."""
    return lifecycle.refreshed(text, {name: draw() for name, draw in PAGES[page].items()})


if __name__ == "__main__":
    for page in PAGES:
        path = Path(__file__).with_name(page)
        path.write_text(fresh(page, path.read_text(encoding="utf-8")), encoding="utf-8")
