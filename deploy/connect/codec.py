"""The codec of a deployment, with the registry's schema ids if a registry is configured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deploy.config.configuration import without_secrets
from deploy.connect.schema_registry import Registry
from schemas.codec import Codec
from schemas.errors import RegistryError

if TYPE_CHECKING:
    from deploy.config.settings import Settings


def codec_for(settings: Settings) -> Codec:
    """Return the codec; with a registry, registers the current schemas and takes their ids.

    Raises:
        RegistryError: the registry does not answer, or refuses a schema.
    """
    given = settings.registry
    if given.url is None:
        return Codec()
    properties: dict[str, object] = {"url": given.url}
    if given.user is not None:
        password = "" if given.password is None else given.password.get_secret_value()
        properties["basic.auth.user.info"] = f"{given.user}:{password}"
    try:
        with Registry(properties) as registry:
            found = registry.resolve(settings.prefix)
    except RegistryError as error:
        raise RegistryError(without_secrets(str(error))) from None  # the client's own errors may show the URL
    return Codec(found.ids, found.accepted)
