"""Pages name files and folders that are there: a file that was moved is found here, and not by a reader."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from load.figures import NONE, SHOWN, Figures
from load.registry import SCENARIOS
from load.research.many_models import PAGE as MANY_MODELS
from load.research.steps import PAGE as STEPS
from load.results.pages import beside_guide, filled, listed, wrapped
from load.results.results import Result
from load.results.tables import Table
from load.scenario import Scenario

if TYPE_CHECKING:
    from load.harness.system import Stage

ROOT = Path(__file__).resolve().parents[3]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
# Parts of pages that are written by scenarios; their links start at `docs/`.
PARTS = sorted(part for ending in ("md", "md.j2") for part in (ROOT / "load").rglob(f"*.{ending}"))
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")
ANCHOR = re.compile(r"\]\(([^)#\s]*)#([^)\s]+)\)")
# A path of ours in backquotes, without placeholders.
NAMED = re.compile(r"`((?:schemas|policies|streams|workers|deploy|load|tests)/[\w./]+)`")
# A page shows how to add it.
EXAMPLES = {"workers/runtimes/matrix.py"}


def text_of(page: Path) -> str:
    """Return a page without its code blocks."""
    return re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return what links may point at in a page: its headings, as they are shown in an address."""
    heads = re.findall(r"^#+ (.*)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file_or_folder(page: Path) -> None:
    """Those to other sites are not followed."""
    links = [link for link in LINK.findall(text_of(page)) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_into_a_page_finds_its_heading(page: Path) -> None:
    """A heading that was reworded loses its readers."""
    links = [(link, head) for link, head in ANCHOR.findall(text_of(page)) if "://" not in link]
    targets = [(page.parent / link if link else page, head) for link, head in links]
    assert [head for target, head in targets if head not in anchors(target)] == []


@pytest.mark.parametrize("page", [*PAGES, *PARTS], ids=lambda page: page.name)
def test_every_path_that_is_named_exists(page: Path) -> None:
    """A name in backquotes is a promise, too."""
    named = set(NAMED.findall(text_of(page))) - EXAMPLES
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


def test_the_architecture_leads_to_every_folder_of_the_operators_and_workers() -> None:
    """A room without a door would not be found."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    folders = [
        folder
        for top in ("streams/operators", "streams/runtime", "workers")
        for folder in (ROOT / top).iterdir()
        if (folder / "__init__.py").exists()
    ]
    assert [str(folder.relative_to(ROOT)) for folder in folders if f"(../{folder.relative_to(ROOT)})" not in page] == []


def test_figures_take_the_place_of_figures_and_the_guide_before_them_stays(tmp_path: Path) -> None:
    """A guide is written by hand; a page that is no guide's figures is written whole."""
    guide = tmp_path / "guide.md"
    assert beside_guide(guide, "## Figures\n\nnew\n") == "## Figures\n\nnew\n"
    guide.write_text("# Guide\n\nHow.\n\n## Figures\n\nold\n")
    assert beside_guide(guide, "## Figures\n\nnew\n") == "# Guide\n\nHow.\n\n## Figures\n\nnew\n"
    assert beside_guide(guide, "# All measured\n") == "# All measured\n"


def test_a_template_gets_figures_tables_and_what_was_missed() -> None:
    """Blank lines that follow one another are one, and the short form is told from the full one."""
    scenario = Scenario(
        "some",
        Figures(SHOWN("lost", must=NONE)),
        not_run,
        "",
        tables=lambda result: [Table("Losses", ("", "lost"), (("all", str(result.figures["lost"])),))],
        page="results/section.md.j2",
    )
    machine: Any = {"cores_usable": 2, "processor": "a processor", "broker": "a broker"}
    text = scenario.written(Result("some", {"lost": 2}, {"form": "short"}, notes=("So it is.",)), machine)
    assert text == (
        "2 cores of a processor; a broker; form short.\n\n"
        "### Losses\n\n|  | lost |\n| --- | ---: |\n| all | 2 |\n\n"
        "- So it is.\n- Target missed: lost is 2, and should be == 0.\n"
    )


def test_what_a_result_lacks_is_named_and_not_left_out() -> None:
    """A page with a hole would say something else."""
    with pytest.raises(LookupError, match=r"section\.md\.j2 cannot be filled: 'machine' is undefined"):
        filled("results/section.md.j2", {"tables": {}})


def test_prose_is_wrapped_by_paragraphs_and_items() -> None:
    """Neither a long word nor a hyphen is a place to break."""
    text = wrapped(f"a\nb\n\n- c\n  d\n- {'e' * 130} f-{'g' * 118}\n")
    assert text == f"a b\n\n- c d\n- {'e' * 130}\n  f-{'g' * 118}\n".replace("- eee", "-\n  eee")
    assert listed(["a", "b"]) == "- a\n- b"


def test_every_template_is_the_page_of_a_scenario_or_a_part_of_one() -> None:
    """One that was left behind would be filled by nobody."""
    pages = {scenario.page for scenario in SCENARIOS.values() if scenario.page}
    parts = {"results/section.md.j2", "research/part.md.j2"}
    found = {path.relative_to(ROOT / "load").as_posix() for path in (ROOT / "load").rglob("*.j2")}
    assert found == pages | parts | {MANY_MODELS.template, STEPS.template}


async def not_run(stage: Stage) -> Result:
    """Measure nothing."""
    raise NotImplementedError(stage)
