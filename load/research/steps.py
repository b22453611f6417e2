"""The page docs/steps.md: scenarios with more than one question a query, and with answers that are learnt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from load.research.collected import Collection, Part, Row, plain, share
from load.research.learning import cascade_tables as cascade
from load.research.learning import conformal, linear
from load.research.nexus import graph
from load.research.parm import hedge
from load.research.parm import parm_tables as parm
from load.research.recommend import laser_tables as laser
from load.research.recommend import velox_tables as velox
from load.results.pages import count, ms, times

if TYPE_CHECKING:
    from collections.abc import Sequence

PARTS: Final[Sequence[Part]] = (
    Part(
        cascade.SCENARIO,
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
    ),
    Part(
        hedge.SCENARIO,
        (
            Row("p99.9 without", "plain_p999_ms", ms),
            Row("p99.9 with", "hedged_p999_ms", ms),
            Row("p99.9 less than without", "p999_saved", share),
            Row("questions put twice", "extra", share),
            Row("put twice in an outage of 3 s", "outage_again", count),
        ),
    ),
    Part(
        graph.SCENARIO,
        (
            Row("pictures a second at 45 ms, split by what batches take, simulated", "at_45_split_per_s", count),
            Row("the same, split evenly", "at_45_even_per_s", count),
            Row("ratio at the tightest objective", "tightest_ratio", times),
            Row("the same ratio on Kafka, with models that sleep as long", "live_tightest_ratio", times),
        ),
    ),
    Part(
        parm.SCENARIO,
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
    ),
    Part(
        velox.SCENARIO,
        (
            Row("root mean square error, weights of each user", "personal_rmse", plain),
            Row("the same, weights of all together", "common_rmse", plain),
            Row("the same, features trained anew meanwhile", "retrained_rmse", plain),
            Row("longest answer around the switch", "switch_max_ms", ms),
            Row("answers a second to new users, median of waves of 10,000", "guests_answered_per_s", count),
        ),
    ),
    Part(
        linear.SCENARIO,
        (
            Row("error of `linucb`", "linucb_error", share),
            Row("error of `linear_thompson`", "linear_thompson_error", share),
            Row("error of `exp3`, which cannot use features", "exp3_error", share),
            Row("error of the best model alone", "best_single_error", share),
            Row("error of whoever knows which model suits which features", "best_by_features_error", share),
        ),
    ),
    Part(
        laser.SCENARIO,
        (
            Row("99 of 100 answers of the source come within", "source_p99_ms", ms),
            Row("answered by the deadline of 200 ms", "in_time", share),
            Row("AUC lost by imputation, waited for", "waits_auc_lost", plain),
            Row("AUC lost by imputation, never waited for", "hurries_auc_lost", plain),
            Row("clicks a query more than the model alone, two speeds", "market_over_cold", plain),
            Row("clicks a query more than feedback alone, two speeds", "market_over_warm", plain),
        ),
    ),
    Part(
        conformal.SCENARIO,
        (
            Row("held before the drift, one model, promised 90 %", "single_held_before", share),
            Row("held after it", "single_held_after", share),
            Row("the same with fixed sets", "single_fixed_held_after", share),
            Row("labels in a set before", "single_size_before", plain),
            Row("labels in a set after", "single_size_after", plain),
        ),
    ),
)
PAGE: Final = Collection("steps", "research/steps.md.j2", PARTS, is_whole=False)
