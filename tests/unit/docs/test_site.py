"""The site is built without a broken link, anchor or name, and says what the product says."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site() -> Iterator[Any]:
    """Return a function that imports a module of the site."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(DOCS / "site"))
        yield importlib.import_module


def test_every_page_is_in_the_navigation_once(site: Any) -> None:
    """The first page lists them; one that it forgets, nobody finds."""
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    listed = [page.name for pages in site("reading").sections(index).values() for page in pages]
    assert sorted(listed) == sorted(page.stem for page in DOCS.glob("*.md") if page.stem != "index")


def test_the_first_page_for_programs_lists_all_pages(site: Any) -> None:
    """In the form of llmstxt.org: a title, a summary, headings, links with a line each."""
    listed = site("llms").listed((DOCS / "index.md").read_text(encoding="utf-8"))
    assert re.match(r"# Skysail\n\n> .+\n\n## ", listed)
    assert "- [Settings](settings.md): every key" in listed
    assert len(re.findall(r"^- \[.+\]\(.+\.md\)", listed, re.MULTILINE)) == len([*DOCS.glob("*.md")]) - 1


def test_every_exception_with_a_text_has_advice(site: Any) -> None:
    """A new kind of error has to say what to do about it."""
    errors = site("errors_page")
    told = {name for kind in errors.KINDS for name in kind.exceptions}
    assert {*errors.messages()} - told - errors.SILENT == set()
    assert told - {*errors.messages()} == set()


def test_an_error_is_found_by_its_text(site: Any) -> None:
    """Messages stand there as they are raised, with a sign where one names something."""
    page = site("errors_page").page()
    for told in (
        "which application? Set `gateway.application`, use a token of one alone, or a path that names it",
        "is not connected; use it inside `async with`",
        "no Kafka broker answers at … (…); start one with `skysail kafka start`",
        "| `unmatched` | no query with this id was answered",
    ):
        assert told in page, told


def test_all_causes_of_dead_letters_are_told(site: Any) -> None:
    """As the kernels name them, and as the page on what is bad does."""
    causes = site("errors_page").CAUSES
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "streams").rglob("*.py"))
    refused = {
        *re.findall(r"refuse\(\w+, \"([a-z_]+)\"", sources),
        *re.findall(r"DeadLetter\([^)]*?\"([a-z_]+)\"", sources),
    }
    assert refused
    assert refused <= {*causes}


def test_commands_are_all_there(site: Any) -> None:
    """Each verb and each command of a group, with its options."""
    page = site("commands_page").page()
    assert "\n### model rollback\n" in page
    assert "Usage: skysail model rollback [OPTIONS] NAME" in page


@pytest.mark.timeout(300)
def test_the_site_is_built_without_a_warning_and_asks_no_other_host(tmp_path: Path) -> None:
    """As by `make docs`: links, anchors and names lead somewhere, and a reader without a network misses nothing."""
    pytest.importorskip("furo", reason="needs the extra `docs`")
    pytest.importorskip("myst_parser", reason="needs the extra `docs`")
    command = [sys.executable, "-m", "sphinx", "--conf-dir", "docs/site", "--builder", "html", "--fail-on-warning"]
    command += ["--keep-going", "--quiet", "--doctree-dir", str(tmp_path / "trees"), "docs", str(tmp_path / "site")]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    pages = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "site").glob("*.html")}
    assert {"index.html", "errors.html", "commands.html", "api.html", "settings.html", "search.html"} <= {*pages}
    loaded = re.compile(r"<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=\"((?:https?:)?//[^\"]+)")
    assert {name: found for name, text in pages.items() if (found := loaded.findall(text))} == {}
    styles = "".join(path.read_text(encoding="utf-8") for path in (tmp_path / "site" / "_static").rglob("*.css"))
    assert re.findall(r"(?:url\(|@import )['\"]?(?:https?:)?//[^)]*", styles) == []
    assert 'id="skysail.package_sklearn"' in pages["api.html"]
    assert (tmp_path / "site" / "llms-full.txt").stat().st_size > 100_000
    assert "unmatch" in (tmp_path / "site" / "searchindex.js").read_text(encoding="utf-8")
