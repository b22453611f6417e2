"""Which versions of a model are wanted, according to topic `models`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Model
from streams.operators.contract import LogMessage

if TYPE_CHECKING:
    from schemas.codec import Codec
    from streams.operators.contract import Effects, Record


class Wanted(NamedTuple):
    """A version that is to run beside the serving one.

    Attributes:
        model: which.
        share: of the queries that it answers; 0 = it is a shadow, None = it stands by.
    """

    model: Model
    share: float | None


class Versions:
    """The topic's content about one model.

    Attributes:
        wanted: the version that should serve.
        has_changed: whether a record came since the owner set this to False.
    """

    def __init__(self, model: Model) -> None:
        """Want the version that is served."""
        self.wanted = model
        self.has_changed = False
        self._known: dict[str, Model] = {}

    def on_record(self, record: Record, codec: Codec) -> Effects:
        """Take a record of topic `models`; another model's, a removal and an unreadable one change nothing."""
        name, is_known, version = (record.key or b"").decode(errors="replace").partition(topics.MODEL_VERSION)
        if name != self.wanted.name or record.value is None:
            return []
        try:
            model = codec.decode(Model, record.value)
        except DecodeError as fault:
            return [LogMessage(f"a record about model {self.wanted.name} cannot be read: {fault}", is_fault=True)]
        if is_known:
            self._known.pop(version, None)  # in the order in which they were written last, as operators see them listed
            self._known[version] = model
        else:
            self.wanted = model
        self.has_changed = True
        return []

    def shares(self, served: str) -> dict[str, float | None]:
        """Return the versions that must run beside this one, with their shares of the queries; None = it stands by."""
        wanted = self.wanted
        names = (*wanted.standby, *wanted.labels.values())
        loaded: dict[str, float | None] = {**dict.fromkeys(names), **wanted.shares}
        return {version: share for version, share in loaded.items() if version not in (served, wanted.version)}

    def beside(self, served: str) -> tuple[list[Wanted], bool]:
        """Return the versions that must run beside this one, and whether all of them are known."""
        shares = self.shares(served)
        known = [Wanted(self._known[version], share) for version, share in shares.items() if version in self._known]
        return known, len(known) == len(shares)

    def before(self, wanted: Model) -> list[Model]:
        """Return the versions added before this one that do not run beside it, the last one first.

        Versions added later were rolled back, and those beside it have not proved good yet.
        """
        known = [*self._known.values()]
        end = next((place for place, model in enumerate(known) if model.version == wanted.version), len(known))
        return [model for model in reversed(known[:end]) if model.version not in wanted.shares]


def differs(one: Model, other: Model) -> bool:
    """Tell whether two versions answer differently; one package in two places does not."""
    return (one.version, one.digest) != (other.version, other.digest)
