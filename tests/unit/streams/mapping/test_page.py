"""The page's examples are mappings that are taken."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from streams.mapping.spec import TopicMapping

PAGE = (Path(__file__).parents[4] / "docs" / "mapping.md").read_text(encoding="utf-8")
KEYS = ("from", "to", "feedback")


def test_every_application_of_the_page_is_taken() -> None:
    """Those of the walk and of settings, and what stands alone."""
    blocks = re.findall(r'```yaml\n(.*?)```|write_text\("""(.*?)"""', PAGE, re.DOTALL)
    settings = [yaml.safe_load(first or second) for first, second in blocks]
    alone = re.findall(r"\n    ((?:from|feedback):.*(?:\n      .*)*)", PAGE)
    given = [app for each in settings for app in each["applications"].values()]
    given += [yaml.safe_load(each.replace("\n    ", "\n")) for each in alone if each not in "".join(map(str, blocks))]
    assert len(given) >= 7
    for each in given:
        found = TopicMapping.of({key: each[key] for key in KEYS if key in each})
        assert found.reads
