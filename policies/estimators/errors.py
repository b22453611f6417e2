"""Why there is no estimate.

EstimateError        arrays that are no log, or a question that the estimator cannot answer of this log
└── TooFewError      the log says too little about the policy: fewer effective samples than an estimate needs
"""

from __future__ import annotations

from policies.errors import PolicyError


class EstimateError(PolicyError):
    """A log or a question of which no estimate can be made."""


class TooFewError(EstimateError):
    """Too few effective samples for an interval that means what it says.

    Attributes:
        effective: samples that there are.
        needed: samples that are needed.
    """

    def __init__(self, effective: float, needed: float) -> None:
        super().__init__(
            f"{effective:.0f} effective samples, {needed:g} are needed: the log says too little about this policy;"
            " record more, or let the serving policy explore more"
        )
        self.effective = effective
        self.needed = needed
