"""The page's examples are mappings that are taken."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from streams.mapping.spec import TopicMapping

PAGE = (Path(__file__).parents[4] / "docs" / "mapping.md").read_text(encoding="utf-8")
KEYS = ("from", "to", "feedback")


def applications(block: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the applications of settings; what stands alone is a part of one."""
    return list(block["applications"].values()) if "applications" in block else [block]


def test_every_application_of_the_page_is_taken() -> None:
    """Those of the walk and of settings, and what stands alone."""
    blocks = re.findall(r'```yaml\n(.*?)```|write_text\("""(.*?)"""', PAGE, re.DOTALL)
    given = [app for each in blocks for app in applications(yaml.safe_load(each[0] or each[1]))]
    assert len(given) >= 7
    for each in given:
        found = TopicMapping.of({key: each[key] for key in KEYS if key in each})
        assert found.reads
