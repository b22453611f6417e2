"""The codec of a deployment: with the registry's schema ids where a registry is configured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas.codec import Codec

if TYPE_CHECKING:
    from deploy.settings import Settings


def codec_for(settings: Settings) -> Codec:
    """Return the codec; with a registry, registers the current schemas and takes their ids.

    Raises:
        RegistryError: the registry does not answer, or refuses a schema.
    """
    if settings.registry.url is None:
        return Codec()
    raise NotImplementedError
