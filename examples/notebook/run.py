"""Runs the notebook's cells from top to bottom, for those who have no Jupyter; with it: jupyter lab digits.ipynb."""

import json
from pathlib import Path

names = {}
for cell in json.loads(Path("digits.ipynb").read_text(encoding="utf-8"))["cells"]:
    text = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        print(text.splitlines()[0], flush=True)
    else:
        exec(compile(text, "digits.ipynb", "exec"), names)
