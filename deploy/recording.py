"""What a trace says about the deployment that it was recorded of."""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING

from deploy.config.configuration import masked
from streams.trace.manifest import Manifest

if TYPE_CHECKING:
    from deploy.config.settings import Settings


def about(settings: Settings) -> Manifest:
    """Return the manifest of a new trace of this deployment."""
    return Manifest(settings.prefix, metadata.version("skysail"), masked(settings))
