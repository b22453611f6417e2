"""What each scenario must reach, and whether a result does.

A target says that nothing has got worse, not that Skysail is ahead: docs/benchmark.md begins with what to doubt.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from load.results.results import Result

_COMPARE: Mapping[str, Callable[[float, float], bool]] = {"<=": operator.le, ">=": operator.ge, "==": operator.eq}


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on one figure; `only_with` names a parameter's value without which the bound does not apply."""

    figure: str
    relation: Literal["<=", ">=", "=="]
    bound: float
    only_with: tuple[str, str] | None = None


_IN_FULL = ("form", "full")
# An idle selection role, the ids of a million queries, and as many states as are configured, at 2 KiB each.
_WITH_STATES_MIB = 76 + 30 + 100_000 * 2 / 2**10

TARGETS: Mapping[str, tuple[Target, ...]] = {
    "loop": (  # hand loops with fastavro; Skysail's rate by its own clock, of answers and not of what is learnt
        Target("ratio_rate", ">=", 0.4),
        Target("ratio_cpu", "<=", 3.0),
        *(
            target
            for rate in (200, 500, 2_000)
            for target in (
                Target(f"at_{rate}_ratio_p50", "<=", 1.2),
                Target(f"at_{rate}_ratio_p99", "<=", 1.3),
                Target(f"at_{rate}_within_slo", ">=", 0.995),
                Target(f"at_{rate}_lost", "==", 0),
            )
        ),
        Target("backlog_lost", "==", 0),
        Target("backlog_defaults", "==", 0),
        *(Target(f"shortest_at_{rate}_ratio_p50", "<=", 1.3) for rate in (200, 500)),
        *(Target(f"{lane}_at_{rate}_lost", "==", 0) for lane in ("hop", "shortest") for rate in (200, 500)),
    ),
    "figure8": (
        Target("exp3_error_total", "<=", 0.082, ("source", "mnist")),
        Target("exp4_error_total", "<=", 0.066, ("source", "mnist")),
        Target("lost", "==", 0),
    ),
    "personal": (
        Target("bandit_error", "<=", 0.16),
        Target("full_error", "<=", 0.035),
        Target("lost", "==", 0),
    ),
    "agreement": (
        Target("all_error_rises", "==", 0),
        Target("all_off_reference", "==", 0),
        Target("best_missing_off_reference", "==", 0),
        Target("confidence_off", "==", 0),
        Target("best_missing_costs", "<=", 0.01),
        Target("lost", "==", 0),
    ),
    "specialists": (
        Target("class_vote_error", "<=", 0.23, ("source", "mnist")),
        Target("saved_over_plain_vote", ">=", 0.02),
        Target("saved_over_exp4", ">=", 0.1),
        Target("lost", "==", 0),
        Target("alike_lost", "==", 0),
    ),
    "straggler": tuple(
        target
        for models, only_with in ((1, None), (2, _IN_FULL), (4, None), (8, _IN_FULL), (16, None))
        for target in (
            Target(f"models_{models}_in_time", ">=", 0.999, only_with),
            Target(f"models_{models}_p99_over_deadline_ms", "<=", 5.0, only_with),
            Target(f"models_{models}_lost", "==", 0, only_with),
        )
    ),
    "hostile": (
        *(Target(figure, "==", 0) for figure in ("unanswered", "roles_ended", "faults")),
        Target("least_in_time", ">=", 0.99),
        Target("most_grown_mib", "<=", 64),
    ),
    "latecomer": (
        *(
            target
            for lane in ("left_out", "replaced", "not_asked")
            for target in (
                Target(f"{lane}_in_time", ">=", 0.999),
                Target(f"{lane}_lost", "==", 0),
                Target(f"{lane}_defaults", "==", 0),
            )
        ),
        Target("not_asked_late_share", "<=", 0.1),
        Target("not_asked_p50_saved", ">=", 0.5),
    ),
    "batching": (
        Target("settled_share_of_best", ">=", 0.9),
        Target("aimd_least_share", ">=", 0.95),
        Target("default_behind", "<=", 0.05),  # equal contenders are as far apart
        Target("settling_batches", "<=", 200),
        Target("backoff_batches", "<=", 5),
        Target("gain_over_batch_1", ">=", 20),
    ),
    "controllers": (  # without conversion, as Clipper's models ran; a model that is converted gains less by batches
        Target("linear-svm_gain", ">=", 26),
        Target("linear-svm_model_gain", ">=", 26),
        Target("whole_gain", ">=", 26),
        Target("whole_aimd_lost", "==", 0),
        Target("whole_none_lost", "==", 0),
    ),
    "parm": (
        Target("least_right", "==", 9_793),
        Target("most_right", "==", 9_793),
        Target("largest_logit_difference", "<=", 1e-5),
        Target("lost", "==", 0),
    ),
    "account": tuple(
        target
        for stretch in ("backlog", "at_500")
        for target in (
            Target(f"{stretch}_accounted", ">=", 0.9),
            Target(f"{stretch}_accounted", "<=", 1.1),
            Target(f"{stretch}_other", "<=", 0.1),
            Target(f"{stretch}_lost", "==", 0),
        )
    ),
    "cache": (
        *(
            target
            for figure, reference in (
                ("kernel_1000_hit_ratio", 322_134 / 500_000),
                ("kernel_10000_hit_ratio", 386_530 / 500_000),
            )
            for target in (Target(figure, ">=", reference - 0.005), Target(figure, "<=", reference + 0.005))
        ),
        *(
            Target(f"{part}_{count}", "==", 0)
            for part in ("kernel_1000", "kernel_10000", "system")
            for count in ("wrong", "lost")
        ),
        Target("system_defaults", "==", 0),
        Target("system_off_lru", "<=", 0.005),
    ),
    "overload": (
        Target("kept", ">=", 0.9),
        Target("kept_adaptive", ">=", 0.9),
        Target("ranked_highest_over_lowest", ">=", 2),
        Target("ranked_at_3_lost", "==", 0),
        *(
            Target(f"{how}_at_{times}_lost", "==", 0)
            for how in ("admission", "without", "adaptive")
            for times in (1, 3)
        ),
    ),
    "learn": (
        Target("observations_per_s", ">=", 11_000),
        Target("observations_per_core_s", ">=", 5_000),
        Target("contexts_observations_per_s", ">=", 11_000),
        Target("contexts_learner_cpu_us_per_observation_ratio", "<=", 10),
        Target("pending_million_mib", "<=", 700 * 1e6 / 2**20, ("form", "full")),
    ),
    "peers": (  # hand loops and peers read and write records with fastavro, which most of these ratios are made of
        Target("skysail_shortest_to_hand_ratio_rate", ">=", 0.75),
        Target("skysail_shortest_to_peer_ratio_rate", ">=", 1.3),
        *(Target(f"skysail_shortest_to_hand_ratio_at_{rate}_p50", "<=", 1.3) for rate in (200, 500)),
        Target("skysail_unconverted_to_hand_ratio_rate", ">=", 0.75, _IN_FULL),
        Target("skysail_unconverted_to_peer_ratio_rate", ">=", 1.3, _IN_FULL),
        Target("skysail_whole_to_hand_ratio_rate", ">=", 0.4),
        Target("skysail_whole_to_hand_ratio_cpu", "<=", 3.0),
        *(
            Target(f"skysail_{lane}_{count}", "==", 0)
            for lane in ("shortest", "whole")
            for count in ("lost", "unanswered", "duplicates", "wrong")
        ),
    ),
    "forest": (
        *(
            target
            for objective in (20, 50, 100)
            for target in (
                Target(f"best_{objective}ms_to_peer_ratio_rate", ">=", 2.0),
                Target(f"aimd_{objective}ms_to_fixed_ratio_rate", ">=", 0.95),
            )
        ),
        Target("wrong", "==", 0),
    ),
    "trio": (
        Target("skysail_kept", ">=", 0.97),
        Target("skysail_kept", "<=", 1.03),
        *(Target(f"skysail_{how}_{count}", "==", 0) for how in ("with", "without") for count in ("lost", "wrong")),
    ),
    "scale": (
        Target("workers_cpu_off_mean", "<=", 0.1, ("form", "full")),
        # Of models that sleep: the path spreads, whatever a model costs.
        Target("workers_rate_gain", ">=", 3.6, ("form", "full")),
        Target("contexts_1000000_states", "<=", 100_000, ("form", "full")),
        Target("contexts_1000000_selection_mib", "<=", _WITH_STATES_MIB, ("form", "full")),
        *(
            Target(f"{part}_{size}_lost", "==", 0, ("form", "full"))
            for part, size in (("workers", 8), ("models", 64), ("applications", 1_000), ("contexts", 1_000_000))
        ),
        *(
            Target(f"memory_{role}_mib_per_million", "<=", 30.0, ("form", "full"))
            for role in ("selection", "joiner", "learner")
        ),
    ),
    # Of models that sleep, too.
    "replicas": (Target("scale_4", ">=", 3.8), Target("workers_4_seen", "==", 4)),
    "takeover": (
        *(Target(f"{fault}_outage_s", "<=", s) for fault, s in (("killed", 5), ("hung", 10), ("still", 15))),
        *(Target(f"{fault}_lost", "==", 0) for fault in ("killed", "hung", "still")),
    ),
    "delayed": (
        *(Target(f"wait_{wait}_lost", "==", 0) for wait in (0, 2, 10, 40)),
        Target("gain", ">=", 1.5),
    ),
    "recall": (
        *(Target(f"{how}_{count}", "==", 0) for how in ("with", "without") for count in ("lost", "defaults")),
        Target("gain", ">=", 1),
    ),
    "paper": (Target("parts_failed", "==", 0),),
    "rollout": (
        Target("lost", "==", 0),
        Target("wrong_version", "==", 0),
        Target("unserved_more", "<=", 0),
        Target("canary_s", ">=", 0),  # these three say that it came about at all, not how soon
        Target("canary_share", ">=", 0.1),
        Target("canary_share", "<=", 0.3),
        Target("there_s", ">=", 0),
        Target("back_s", ">=", 0),
    ),
    "seeds": (Target("violations", "==", 0), Target("simulated_hours", ">=", 200, _IN_FULL)),
    "idle": (
        *(Target(f"{role}_mib", "<=", 76) for role in ("selection", "joiner", "learner")),
        Target("control_mib", "<=", 150),
        Target("worker_mib", "<=", 220),
        Target("all_roles_cores", "<=", 0.05),
    ),
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target and what was measured; None = the result has no such figure, which is a failure too."""

    target: Target
    measured: float | None

    @property
    def reached(self) -> bool:
        """Whether the bound holds."""
        return self.measured is not None and _COMPARE[self.target.relation](self.measured, self.target.bound)


def verdicts(result: Result) -> list[Verdict]:
    """Judge a result by the targets of its scenario that apply to it."""
    return [
        Verdict(target, result.figures.get(target.figure))
        for target in TARGETS.get(result.scenario, ())
        if _applies(target, result)
    ]


def not_judged(result: Result) -> list[Target]:
    """Return the targets that hold for other data than this result was measured on."""
    return [target for target in TARGETS.get(result.scenario, ()) if not _applies(target, result)]


def _applies(target: Target, result: Result) -> bool:
    return target.only_with is None or result.parameters.get(target.only_with[0]) == target.only_with[1]
