"""Packages as the settings trust them: who has to have signed them, and which code they may name.

models.require_signature ─┬─ set ─▶ signed by the owner of one of these keys; code by a path: that of `worker.code`
                          └─ not ─▶ any package; any code, or that of `worker.code`
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from deploy.errors import UsageError
from schemas.records import Model
from schemas.topics import MODEL_VERSION
from streams.usual.rows import written
from workers.errors import PackageError
from workers.packages.loading import checked, load_package
from workers.packages.signing.signed import keys_module
from workers.runtimes.trunks import trunk_of

if TYPE_CHECKING:
    from deploy.config.settings import Settings
    from workers.manifest import Pinned
    from workers.packages.loading import LoadedModel


def keys_of(settings: Settings) -> str:
    """Return the folder of keys by one of which packages have to be signed; empty = they need not."""
    place = settings.require_signature
    return "" if place is None else str(place.expanduser().absolute())


def require_keys(settings: Settings) -> int:
    """Refuse a folder of keys by which no package could be trusted; returns how many keys there are.

    Raises:
        SignatureError: it has none, cannot be read, or holds something odd.
    """
    place = keys_of(settings)
    return len(keys_module().read_public(Path(place))) if place else 0


def model_record(package: Path, settings: Settings | None = None) -> Model:
    """Return the record that deploys a package.

    Args:
        package: its folder.
        settings: which packages they trust; None = any.

    Raises:
        PackageError: the folder is no package, its files have changed, or it is not trusted.
    """
    manifest, digest = checked(package) if settings is None else _trusted(settings, package)
    parity = manifest.options.get("parity")
    trunk = trunk_of(manifest)
    return Model(
        name=manifest.name,
        version=manifest.version,
        runtime=manifest.runtime,
        path=str(package.resolve()),
        digest=digest,
        output=manifest.output,
        dtype=None if manifest.input.inputs else manifest.input.dtype,  # type: ignore[arg-type] # else it is one
        shape=manifest.input.shape,
        classes=tuple(str(name) for name in manifest.classes),
        bytes=sum((package / name).stat().st_size for name in manifest.files),
        parity_of="" if parity is None else parity["of"],
        parity_k=0 if parity is None else parity["k"],
        parity_right=() if parity is None else tuple(parity.get("right", ())),
        trunk=trunk.digest,
        trunk_bytes=sum((package / name).stat().st_size for name in trunk.files),
        inputs=manifest.input.inputs,
        outputs=manifest.outputs,
        usual=written(manifest.options.get("usual")),
    )


def loaded(settings: Settings, package: Path) -> tuple[Model, LoadedModel]:
    """Load a package on behalf of a command; returns its record, too.

    Raises:
        PackageError: it cannot be loaded, or the settings do not trust it.
    """
    record, keys = model_record(package, settings), keys_of(settings)
    code = settings.worker.code if keys else ()  # whoever gives a command may name code, unless packages are signed
    return record, load_package(package, code=code, keys=keys, version=version_of(record), digest=record.digest)


def _trusted(settings: Settings, package: Path, version: str = "") -> Pinned:
    """Check a package as whoever loads it does; no code of it runs."""
    keys = keys_of(settings)
    return checked(package, code=settings.worker.code if keys else (), keys=keys, version=version)


def require_trusted(settings: Settings, model: Model) -> None:
    """Refuse a known version that its workers would refuse, where its package is on this machine.

    Raises:
        UsageError: the settings do not trust it.
    """
    folder = Path(model.path)
    if not keys_of(settings) or not folder.is_dir():
        return
    try:
        found = _trusted(settings, folder, version_of(model))
    except PackageError as error:
        raise UsageError(f"{model.name} {model.version} would not be loaded: {error}") from error
    if found.digest != model.digest:
        raise UsageError(f"{folder} is not the package that was deployed as {version_of(model)}: add the model again")


def version_of(model: Model) -> str:
    """Return MODEL@VERSION."""
    return f"{model.name}{MODEL_VERSION}{model.version}"
