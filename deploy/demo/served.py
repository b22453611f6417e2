"""What the package of the breakable model names. Importing it loads the model, before its worker takes any query."""

from __future__ import annotations

import os
from pathlib import Path

from deploy.demo.models import FOLDER_VARIABLE, Breakable

model = Breakable(Path(os.environ[FOLDER_VARIABLE]))
