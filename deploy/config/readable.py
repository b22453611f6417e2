"""YAML for people."""

from __future__ import annotations

from typing import Any

import yaml


class ReadableDumper(yaml.SafeDumper):  # type: ignore[misc] # PyYAML has no types
    """Writes small collections in one line, and texts of several lines as they are."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **(named | {"default_flow_style": None}))

    def ignore_aliases(self, data: object) -> bool:
        """Write what is there twice twice."""
        return True

    def represent_str(self, data: str) -> Any:
        """Choose the style of a text."""
        return self.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)


ReadableDumper.add_representer(str, ReadableDumper.represent_str)
