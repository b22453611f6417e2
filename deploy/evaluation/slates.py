"""What `skysail evaluate` says about rankings, in words."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

from deploy.evaluation import words
from policies.estimators.estimate import Estimate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streams.evaluation.slates import SlateEvaluation

_SAID: Final = {
    "per_place": "each place by itself",
    "pseudo_inverse": "the ranking as a whole",
}


def story(found: SlateEvaluation) -> Iterator[str]:
    """Yield what was judged, and by what."""
    yield f"{found.application}: what {found.policy} would have earned a ranking, in labels summed over the places"
    yield f"judged by {found.drawn:,} rankings that were drawn, of {found.rankings:,} whose windows have ended"
    if found.served is not None:
        yield f"what served has earned {found.served:.4f} a ranking"
    if found.is_of_told:
        yield (
            "all of this is of rankings with feedback, because those without it are not in the log: set `default_loss`,"
            " and what is earned will be that of any ranking"
        )


def heads(alpha: float) -> Sequence[str]:
    """Return the heads of `rows`."""
    return ("estimator", "judges", "earned", f"{1 - alpha:.0%}", "standard error", "effective samples")


def rows(found: SlateEvaluation) -> Iterator[Sequence[str]]:
    """Yield a row for each estimator that can say."""
    for name, each in found.estimates.items():
        if not isinstance(each, Estimate):
            continue
        bounds = f"{each.low:.4f} to {each.high:.4f}"
        yield name, _SAID[name], f"{each.value:.4f}", bounds, f"{each.error:.4f}", f"{each.effective:.0f}"


def refused(found: SlateEvaluation) -> Iterator[str]:
    """Yield which estimators cannot say, and what to do about it."""
    yield from (lines := [*words.refused(found.estimates)])
    if lines:
        yield "set `shuffle` higher, or read the log when more rankings were drawn; --force shows them all the same"


def as_json(found: SlateEvaluation) -> dict[str, Any]:
    """Return everything as JSON values; an estimator that refused has its reason."""
    return asdict(replace(found, estimates={})) | {"estimates": words.estimated(found.estimates)}
