"""Schemas of a registry for role `mapping`: looked up by id or subject when the kernel asks, on another thread."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING, Any, Final

from deploy.config.configuration import without_secrets
from deploy.config.protobuf_compiler import compiled
from deploy.connect.schema_registry import Registry, properties_of
from deploy.errors import MissingError, UsageError
from schemas.errors import RegistryError
from streams.mapping.avro import KIND as AVRO
from streams.mapping.protobuf import KIND as PROTOBUF
from streams.mapping.schemas import BY_ID, BY_SUBJECT
from streams.runtime.errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deploy.config.settings import Settings

_NOT_FOUND: Final = 404
# Schemas that one refers to, and these to others: more are a fault.
_MOST_REFERENCES: Final = 100


class MappedSchemas:
    """A registry as a store of schemas, by the keys of `RegisteredSchemas`; implements `stores.base.FeatureStore`.

    Args:
        settings: of the deployment; without `registry.url` every look-up says so.
        registry: instead of the one that the settings name.
    """

    def __init__(self, settings: Settings, registry: Registry | None = None) -> None:
        self._settings = settings
        self._registry = registry
        self._one_at_a_time = threading.Lock()  # look-ups come from several threads

    async def features(self, keys: Sequence[str]) -> Sequence[bytes | None]:
        """Return each schema as JSON; None = the registry has none.

        Raises:
            StoreUnavailableError: the registry does not answer.
        """
        return await asyncio.to_thread(self.look_up, keys)

    def look_up(self, keys: Sequence[str]) -> list[bytes | None]:
        """Return the same; waits for the registry."""
        try:
            with self._one_at_a_time:
                return [self._found(key) for key in keys]
        except RegistryError as error:
            raise StoreUnavailableError(without_secrets(str(error))) from None

    async def close(self) -> None:
        """Disconnect."""
        if self._registry is not None:
            self._registry.close()

    def _connected(self) -> Registry:
        if self._registry is None:
            if self._settings.registry.url is None:
                raise RegistryError("an application maps topics by a registry's schemas: set `registry.url`")
            self._registry = Registry(properties_of(self._settings))
        return self._registry

    def _found(self, key: str) -> bytes | None:
        registry = self._connected()
        try:
            if key.startswith(BY_SUBJECT):
                registered = registry.client.get_latest_version(key.removeprefix(BY_SUBJECT))
                return self._told(registry, registered.schema_id or 0, registered.schema)
            number = int(key.removeprefix(BY_ID))
            return self._told(registry, number, registry.client.get_schema(number))
        except (*registry.failures, ValueError) as error:  # the latter: what it answers is no JSON
            if getattr(error, "http_status_code", None) == _NOT_FOUND:
                return None
            raise RegistryError(f"schema registry: {error}") from error

    def _told(self, registry: Registry, number: int, schema: Any) -> bytes:
        found: dict[str, str] = {}
        _gather(registry, schema, found)
        kind, text, references = schema.schema_type or AVRO, schema.schema_str or "", [*found.values()]
        if kind == PROTOBUF:
            try:
                text, references = compiled(text, found), []
            except (UsageError, MissingError) as error:
                kind = f"{PROTOBUF} that cannot be compiled ({error})"
        return json.dumps({"id": number, "type": kind, "schema": text, "references": references}).encode()


def _gather(registry: Registry, schema: Any, found: dict[str, str]) -> None:
    """Collect what a schema refers to by name, those first that others refer to."""
    for reference in schema.references or ():
        if reference.name in found or len(found) >= _MOST_REFERENCES:
            continue
        its = registry.client.get_version(reference.subject, reference.version).schema
        _gather(registry, its, found)
        found[reference.name] = its.schema_str or ""
