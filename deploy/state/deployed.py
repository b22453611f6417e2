"""The deployment as the control role changes it; implements `streams.control.carry.promoting.Deployment`.

What it calls loads librdkafka, 9 MB, which a page without candidates never needs: so it is imported at the first step.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from deploy.errors import DeployError, UsageError
from policies.errors import PolicyError
from streams.promotion.lifecycle import POLICY
from streams.runtime.errors import BrokerUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deploy.config.settings import Settings
    from schemas.codec import Codec
    from schemas.records import Candidate, Promotion
    from streams.promotion.verdict import CandidateStage


class DeployedState:
    """Reads and writes what is wanted.

    Args:
        settings: of the deployment.
        codec: of its records.
    """

    def __init__(self, settings: Settings, codec: Codec) -> None:
        self._settings = settings
        self._codec = codec

    def fault_of(self, plan: Candidate, stage: CandidateStage, due: Promotion | None) -> str:
        """See `Deployment`."""
        from deploy.state import candidates

        with _to_try_again():
            return candidates.fault_of(self._settings, self._codec, plan, stage, due)

    def take(self, plan: Candidate, step: Promotion) -> str:
        """See `Deployment`."""
        from deploy.state import candidates

        with _to_try_again():
            try:
                candidates.carry_out(self._settings, self._codec, step, plan.holdback)
            except (UsageError, PolicyError) as error:
                return str(error)
            candidates.note(self._settings, self._codec, step)
            return ""

    def end(self, step: Promotion) -> None:
        """See `Deployment`."""
        from deploy.state import candidates

        with _to_try_again():
            if step.kind == POLICY:
                candidates.let_learn(self._settings, self._codec, step.name, "", instead_of=step.candidate)
            candidates.note(self._settings, self._codec, step)


@contextmanager
def _to_try_again() -> Iterator[None]:
    """Turn what a broker refuses now into an error after which the caller tries again."""
    try:
        yield
    except DeployError as error:
        raise BrokerUnavailableError(str(error)) from error
