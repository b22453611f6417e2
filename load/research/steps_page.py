"""The page docs/steps.md: scenarios with more than one question a query, and with answers that are learnt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from load.research.beside import Collection, Part, Row, count, ms, plain, share, times
from load.research.learning import cascade, cascade_page, conformal, conformal_page, linear
from load.research.nexus import graph, graph_page
from load.research.parm import hedge, hedge_page, parm, parm_page
from load.research.recommend import laser, laser_page, velox, velox_page

if TYPE_CHECKING:
    from collections.abc import Mapping

    from load.results.results import Result


NAME: Final = "steps"
_INTRODUCTION: Final = """\
# More than one question a query, and answers from what was learnt

What [cascades](cascades.md), [hedging](hedging.md), [graphs](graphs.md), [coded inference](parity.md),
[recommending](recommending.md), [features](features.md) and [coverage](coverage.md) bring, in one table each, beside
what was published where there is such a figure. Written by `skysail load page --of steps RESULT... > docs/steps.md`,
from the results that the scenarios left. A scenario without a result is left out; its own page has its figures.

**There is no GPU here**, and two cores. *Simulated* is without Kafka, in virtual time. So no row is the same experiment
as the one beside it.
"""


def _no_picture(_: Result) -> Mapping[str, str]:
    return {}


PARTS: Final[Mapping[str, Part]] = {
    cascade.NAME: Part(
        "Cascade: a cheap model first",
        cascade.FIGURES,
        (
            Row("error of the cheap model alone", "linear_error", share),
            Row("error of the dear model alone", "svm_error", share),
            Row("error of the cascade, on Kafka", "cascade_error", share),
            Row("its cost beside the dear model's, by the models' own code", "cost_share", share),
            Row("the same by the time that models took", "time_share", share),
            Row("the same by CPU of whole workers", "cpu_share", share),
            Row("share that asked the dear model, budget of 30 %", "budgeted_share", share),
            Row(
                "on the public MNIST predictions, replayed: error more than the best model's",
                "replayed_excess_error",
                share,
            ),
        ),
        cascade_page.plots,
        "Share that asked the dear model, and error, over the queries",
        "The page of the capability: [cascades.md](cascades.md).",
    ),
    hedge.NAME: Part(
        "Hedging: a second time where an answer is late",
        hedge.FIGURES,
        (
            Row("p99.9 without", "plain_p999_ms", ms),
            Row("p99.9 with", "hedged_p999_ms", ms),
            Row("p99.9 less than without", "p999_saved", share),
            Row("questions put twice", "extra", share),
            Row("put twice in an outage of 3 s", "outage_again", count),
        ),
        hedge_page.plots,
        "Latencies with hedging and without",
        "One of three replicas stands still now and then. The page of the capability: [hedging.md](hedging.md).",
    ),
    graph.NAME: Part(
        "Graphs: the time split over stages",
        graph.FIGURES,
        (
            Row("pictures a second at 45 ms, split by what batches take, simulated", "at_45_split_per_s", count),
            Row("the same, split evenly", "at_45_even_per_s", count),
            Row("ratio at the tightest objective", "tightest_ratio", times),
            Row("the same ratio on Kafka, with models that sleep as long", "live_tightest_ratio", times),
        ),
        graph_page.plots,
        "Pictures a second by objective",
        "The traffic example of Nexus (SOSP 2019). The page of the scenario: [graph-figures.md](graph-figures.md).",
    ),
    parm.NAME: Part(
        "Coded inference: a late output from a sum",
        parm.FIGURES,
        (
            Row("p99.9 beside none, simulated", "virtual_k2_p999_of_none", plain, "0.52 and more"),
            Row("p50 beside none, simulated", "virtual_k2_p50_of_none", plain, "1.0"),
            Row("p99.9 beside as many workers more, simulated", "virtual_k2_p999_of_equal", plain),
            Row("p99.9 beside hedging, simulated", "virtual_k2_p999_of_hedge", plain),
            Row("p99.9 beside none, real processes", "k2_p999_of_none", plain, "0.52 and more"),
            Row("p99 beside none while a worker is killed, real processes", "k2_rebalance_p99_of_none", plain),
            Row("p99.9 of hedging beside none, real processes", "hedge_p999_of_none", plain),
            Row("points of accuracy lost where decoded", "k2_accuracy_lost_points", plain, "at most 6.5"),
            Row("the same, sums of three", "k3_accuracy_lost_points", plain),
            Row("the same, sums of four", "k4_accuracy_lost_points", plain),
            Row("the same, Fashion-MNIST, sums of two", "fashion_k2_accuracy_lost_points", plain),
            Row("how sure decoded answers are", "k2_confidence", share),
            Row("how many of them are right", "k2_accuracy", share),
        ),
        parm_page.plots,
        "Latencies by lane, and accuracy by size of groups",
        """\
ParM (SOSP 2019) has twelve GPUs and ResNet-18; here its network for MNIST runs, or sleeps. The page of the scenario:
[parm.md](parm.md).""",
    ),
    velox.NAME: Part(
        "Recommending: weights for each user",
        velox.FIGURES,
        (
            Row("root mean square error, weights of each user", "personal_rmse", plain),
            Row("the same, weights of all together", "common_rmse", plain),
            Row("the same, features trained anew meanwhile", "retrained_rmse", plain),
            Row("longest answer around the switch", "switch_max_ms", ms),
            Row("answers a second to new users, median of waves of 10,000", "guests_answered_per_s", count),
        ),
        velox_page.plots,
        "Error by earlier ratings of the user, and over time",
        "Velox's paper (CIDR 2015) prints no figures. The page of the capability: [recommending.md](recommending.md).",
    ),
    linear.NAME: Part(
        "Choosing a model by the query's features",
        linear.FIGURES,
        (
            Row("error of `linucb`", "linucb_error", share),
            Row("error of `linear_thompson`", "linear_thompson_error", share),
            Row("error of `exp3`, which cannot use features", "exp3_error", share),
            Row("error of the best model alone", "best_single_error", share),
            Row("error of whoever knows which model suits which features", "best_by_features_error", share),
        ),
        _no_picture,
        "",
        """\
Four models, each right for a quarter of the queries; 24,000 queries on Kafka, with a state for each user. Which policy
suits what: [policies.md](policies.md).""",
    ),
    laser.NAME: Part(
        "Features that come late, and two speeds of learning",
        laser.FIGURES,
        (
            Row("99 of 100 answers of the source come within", "source_p99_ms", ms),
            Row("answered by the deadline of 200 ms", "in_time", share),
            Row("AUC lost by imputation, waited for", "waits_auc_lost", plain),
            Row("AUC lost by imputation, never waited for", "hurries_auc_lost", plain),
            Row("clicks a query more than the model alone, two speeds", "market_over_cold", plain),
            Row("clicks a query more than feedback alone, two speeds", "market_over_warm", plain),
        ),
        laser_page.plots,
        "What answers take, and clicks a query",
        "LASER's paper (WSDM 2014) gives no figures. The page of the capability: [features.md](features.md).",
    ),
    conformal.NAME: Part(
        "Coverage: a promise that is kept",
        conformal.FIGURES,
        (
            Row("held before the drift, one model, promised 90 %", "single_held_before", share),
            Row("held after it", "single_held_after", share),
            Row("the same with fixed sets", "single_fixed_held_after", share),
            Row("labels in a set before", "single_size_before", plain),
            Row("labels in a set after", "single_size_after", plain),
        ),
        conformal_page.plots,
        "Coverage held by windows, and labels in a set, over the queries",
        """\
The law of adaptive conformal inference (Gibbs and Candes 2021) bounds how far below the promise any sequence may stay.
The page of the capability: [coverage.md](coverage.md).""",
    ),
}
PAGE: Final = Collection(NAME, _INTRODUCTION, PARTS, is_whole=False)
