"""The packages below a folder: the folder itself, the folders in it, and those in these.

    models/forest-1, models/forest-2, models/net-1      packages of any models
    models/forest/1, models/forest/2, models/net/1      a folder for each model, with its versions

A package's own name and version count, not those of its folder. Folders whose name begins with a dot are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from deploy.errors import UsageError
from deploy.state.packages import model_record
from workers.errors import PackageError
from workers.manifest import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from deploy.config.settings import Settings
    from schemas.records import Model

# Name, size and time of change of each file of a package.
_State: TypeAlias = "tuple[tuple[str, int, int], ...]"
_DEPTH = 2


class FoundPackage(NamedTuple):
    """A package as it was found.

    Attributes:
        folder: where it lies.
        state: of its files, which tells whether it was changed.
        record: that deploys it; None = it cannot be used.
        fault: why not.
        looks: how often it was found so: a package that is still being copied is another one at the next look.
    """

    folder: Path
    state: _State
    record: Model | None
    fault: str = ""
    looks: int = 1


class Packages:
    """Finds packages.

    Args:
        folder: in which to look.
        settings: which packages they trust; None = any.

    Raises:
        UsageError: there is no such folder.
    """

    def __init__(self, folder: Path, settings: Settings | None = None) -> None:
        if not folder.is_dir():
            raise UsageError(f"there is no folder {folder}")
        self.folder = folder
        self._settings = settings
        self._known: dict[Path, FoundPackage] = {}

    def look(self, tell: Callable[[int, int, Path], None]) -> list[FoundPackage]:
        """Return the packages, in the order of their folders.

        Args:
            tell: called for each before it is read, with its number, how many there are, and its folder.
        """
        folders = [path.parent for depth in range(_DEPTH + 1) for path in self.folder.glob("[!.]*/" * depth + MANIFEST)]
        found: dict[Path, FoundPackage] = {}
        for number, folder in enumerate(sorted(folders), 1):
            tell(number, len(folders), folder)
            state, known = _state(folder), self._known.get(folder)
            is_same = known is not None and known.state == state
            found[folder] = (
                known._replace(looks=known.looks + 1) if known and is_same else _read(folder, state, self._settings)
            )
        self._known = found
        return [*found.values()]


def _state(folder: Path) -> _State:
    try:
        stats = [(path.name, path.stat()) for path in sorted(folder.iterdir())]
    except OSError:  # it is being changed
        return ()
    return tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats)


def _read(folder: Path, state: _State, settings: Settings | None) -> FoundPackage:
    """Check a package: every file against its digest, and its signature where it needs one."""
    try:
        return FoundPackage(folder, state, model_record(folder, settings))
    except (PackageError, OSError) as fault:
        return FoundPackage(folder, state, None, str(fault))
