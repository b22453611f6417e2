"""How `make docs` builds the site; `reading.py` beside it reads the pages, which are plain Markdown, as they are.

Sphinx, MyST and Furo: anchors and links are checked, references to Python too; all styles and scripts are files of the
site, and search runs in the reader's browser.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT)]

import llms  # noqa: E402
import reading  # noqa: E402

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "Skysail"
author = "The authors of Skysail"
release = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["site"]
nitpicky = True
smartquotes = False  # options begin with two signs
# Names of the standard library and of other packages: their sites cannot be asked while this one is built.
nitpick_ignore_regex = [("py:.*", r"(?!skysail\.).*")]
suppress_warnings = ["myst.header"]  # pages of figures begin at the third level

myst_heading_anchors = 5

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "description"
autodoc_typehints_format = "short"
napoleon_use_rtype = False

html_theme = "furo"
html_title = f"Skysail {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {"top_of_page_buttons": []}


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect what reads the pages and what writes `llms.txt`."""
    app.connect("source-read", reading.on_source)
    app.connect("build-finished", llms.on_finished)
    return {"parallel_read_safe": True}
