"""One record of every kind, with every optional field used, and one with none of them."""

from __future__ import annotations

import numpy as np

from schemas.records import (
    Application,
    Candidate,
    Cross,
    Decision,
    Features,
    Feedback,
    Input,
    JoinStatus,
    KeyedFeedback,
    LabelSet,
    Measurement,
    Measurements,
    Metric,
    MetricEvidence,
    MetricFeedback,
    MetricValue,
    Model,
    ModelOutput,
    ModelPredictions,
    ModelQueries,
    NamedTensors,
    NumberInterval,
    Observation,
    Observations,
    OtherState,
    Outcome,
    Place,
    PlaceFeedback,
    PlaceLoss,
    Plan,
    PolicyState,
    Prediction,
    Profile,
    Promotion,
    Query,
    Ranked,
    Report,
    Source,
    Stage,
    StageOutput,
    Status,
    Step,
    TeachingBound,
    Tensor,
    VersionLoss,
    WatchedMetric,
)

NOW_US = 1_766_000_000_000_000
ROW = Tensor.of(np.arange(64, dtype=np.float32))
ROWS = Tensor.of(np.ones((3, 2)))
NAMED = NamedTensors.named({"boxes": np.ones((2, 4), np.float32), "é": np.array(7, np.int64)})
SCORES = Tensor.of(np.array([0.25, 0.75]))
NAMED_ROWS = NamedTensors(NAMED.dtype, (1,), NAMED.data)
DECISION = Decision((1,), 70, "digits/ann", "exp3(eta=0.05,gamma=0.05,share=0.0001)", ("good", "bad"), (0.25, 0.75))
FEATURED = DECISION._replace(features=(1.0, -0.5, 1e-300), apprentice="thompson(gamma=0.01)")
STEPS = (
    Step("escalate", (1,), NOW_US + 1, 0.25, "asked", 0.75, 0.5, 9_000),
    Step("hedge", (1,), NOW_US + 2, 1.0, "asked"),
)
INTERVAL = NumberInterval(1.5, None, 0.9, 0.08, 2.5)
LABEL_SET = LabelSet((7, "x"), False, 0.9, 0.08, 0.25, (0.5, 0.25, 0.01), (-1,))
_PRICES = {"good": 0.25}
_VALUES = (MetricValue("revenue", 12.5, 0.75), MetricValue("latency", 9.0, 0.1))
STAGES = (
    StageOutput("detect", "net", "1", Outcome.OK, "[1]", None, -1, 0, NOW_US, 9_000, NOW_US + 20_000),
    StageOutput("cars", "good", "2", Outcome.OK, 7, SCORES, 0, 3, NOW_US + 9_000, 7, NOW_US + 50_000),
    StageOutput("cars", "good", "", Outcome.OVERLOADED, None, before=0, item=4, left_out=2),
)
RANKED = Ranked(("film-1", "é"), 1, (7, -1), ("é",), ROWS, (1, 0))
SEEN = Observation(
    "q-1",
    "digits",
    "ann",
    FEATURED,
    (None, 1.0),
    1.0,
    7.5,
    JoinStatus.DEFAULT,
    NOW_US,
    NOW_US + 9,
    (None, 3, "x"),
    2.5,
    (VersionLoss("good", "1", 0.0), VersionLoss("good", "2", 1.0)),
    60_000_000,
    STEPS,
    (SCORES, None),
    (0.75, 0.25),
    confidence=0.625,
    label_set=LABEL_SET,
    stages=STAGES,
    imputed=("films",),
    ranked=RANKED._replace(rows=None),
    bound=TeachingBound("orders", 100, 7),
    drawn="summer/2914",
    episode="visit-1",
    places=(
        PlaceLoss(1, 1, None, 4.0, 0.5, features=Tensor("float64", (1,), b"\0" * 8)),
        PlaceLoss(2, 0, 1.0, item=3),
    ),
    interval=INTERVAL,
)
OUTPUTS = (
    ModelOutput("good", "1", Outcome.OK, "seven", SCORES),
    ModelOutput("bad", "2", Outcome.MISSING, None),
)

FULL: tuple[object, ...] = (
    Query("q-1", "digits", ROW, "ann", NOW_US, 20.5, -1, (0.5, -1e300), "good@canary", "token", ROWS, 2, "visit-1"),
    ModelQueries(("q-1", "q-2"), 3, (NOW_US + 20_000, -1), ("some text", b"\xff"), (7, -1), "canary", 15_000, 1),
    ModelPredictions(
        model="good",
        version="1",
        worker="w-1",
        query_ids=("q-1", "q-2"),
        outcomes=(Outcome.OK, Outcome.INVALID),
        answers=Tensor.of(np.array([7, 0])),
        scores=Tensor.of(np.zeros((2, 10), np.float32)),
        waited_us=(10, 2_000_000_000),
        predict_us=900,
        batch_rows=4,
        batch_cap=64,
        queue_rows=1000,
        released="deadline",
        messages=("", "model good takes float32[64], got float32[5]"),
        earliest_us=NOW_US,
        latest_us=NOW_US + 30_000,
        steps=(0, 1),
    ),
    Prediction(
        "q-1",
        "digits",
        "ann",
        DECISION,
        Status.PARTIAL,
        "deadline",
        7,
        0.5,
        OUTPUTS,
        1,
        NOW_US,
        NOW_US + 1,
        NOW_US + 2,
        "token",
        "nothing came",
        STEPS,
        (0.5, 0.5),
        LABEL_SET,
        ("users",),
        STAGES,
        RANKED,
        "summer/2914",
        "visit-1",
    ),
    Feedback(
        "q-1", "seven", 0.5, NOW_US, 2.0, "digits", "web", (PlaceFeedback(2, "", 4), PlaceFeedback(0, "b", None, 1.0))
    ),
    SEEN,
    Observations((SEEN, SEEN._replace(query_id="q-2", context=None, label=None))),
    Application(
        "digits",
        ("good", "bad"),
        "exp4",
        {"eta": 0.1},
        True,
        20.0,
        SCORES,
        "squared",
        60.0,
        0.5,
        "median",
        0.75,
        "running_mean",
        500.0,
        2.5,
        "thompson(gamma=0.01)",
        coverage=0.9,
        sources=(Source("users", 8, "context", "redis", 0.25), Source("texts", 1, "input")),
        stages=(
            Stage("detect", "net", share=0.4),
            Stage("cars", "", "detect", "query", "box", "label == car and score > 0.5", 8, 1.0),
        ),
        metrics=(
            Metric("revenue", "feedback", True, -5.0, 200.0, "EUR", 0.5, 0.0),
            Metric("p", "price", prices=_PRICES),
        ),
        assign="context",
        sticky_s=604_800.0,
        salt="summer",
        holdout=0.05,
        episodes=True,
        examination=(1.0, 0.5),
        shuffle=0.25,
        crosses=(Cross("users", "texts", 8),),
    ),
    Model(
        "good",
        "1",
        "sklearn",
        "/models/good",
        "0" * 64,
        "label",
        "float32",
        (8, 8),
        ("zero", "one"),
        {"2": 0.1, "3": 0.0},
    ),
    Report("w-1", "worker", NOW_US, {"rows_total": 12.0}, {"queue_rows{model=good}": 0.0, "cap": 64.0}),
    PolicyState(
        *("exp3()", ("good", "bad"), 70, (-0.5, 1e300)),
        (OtherState("ucb1()", ("good", "bad"), 7, (0.5, 3.0), NOW_US, (1.5,), (0.5, 0.5)),),
        confidences=(2.0, 0.25),
        coverage=(0.9, 0.1, 3.0),
    ),
    Candidate(
        "version",
        "good",
        "2",
        "1",
        NOW_US,
        (0.0, 0.1, 1.0),
        0.02,
        0.1,
        7,
        30_000_000,
        0.02,
        9.5,
        0.01,
        {"late": 0.1},
        (WatchedMetric("digits", "revenue", 205.0, "EUR", 0.5),),
    ),
    Promotion(
        *("version", "good", "2", "1", NOW_US, NOW_US + 9, "step", 0.1, "it may cost little", 412, 300.5),
        *(0.01, -0.02, 0.04, 0.1, 0.11, -2.5, {"failures": 0.01}, (412, 0, 7)),
        metrics=(MetricEvidence("digits", "revenue", 70, 0.25, -0.5, 1.0, "EUR", 0.5),),
    ),
    Profile("good", "1", (1, 8), (2_100, 9_000), 12_000, 4_096),
    Plan(
        *("small", NOW_US, NOW_US - 9, 2, ("host.small", "host.small@2")),
        (Place("host.small", "good", (0, 2), 12.5, 8, 125_000),),
        *("the epoch is over", ("good moves from host.small@2 to host.small: host.small@2 would be 104% busy",)),
    ),
    Features((0.5, -1e300), 7),
    KeyedFeedback(
        "",
        "digits",
        "ann",
        1_800_000_000,
        "seven",
        0.5,
        NOW_US,
        revises=True,
        weight=0.5,
        teacher="orders",
        episode="visit-1",
    ),
    MetricFeedback("q-1", "revenue", 12.5, NOW_US, "digits", "orders"),
    Measurements(
        (
            Measurement(
                "q-1",
                "digits",
                "ann",
                FEATURED,
                _VALUES,
                ("good@2",),
                NOW_US,
                NOW_US + 9,
                "salt/3",
                "visit-1",
                NOW_US + 99,
            ),
        )
        * 2
    ),
)

BARE: tuple[object, ...] = (
    Query("q-1", "digits", b"\x00\xff"),
    Query("q-1", "digits", "", candidates=("film-1", "é")),
    Query("q-1", "digits", NAMED),
    Feedback("q-1", NAMED),
    ModelQueries(("q-1",), 0, (1,), NAMED_ROWS),
    ModelPredictions("good", "1", "w-1", ("q-1",), (Outcome.OK,), NAMED_ROWS, None, (0,), 0, 0, 0, 0),
    ModelQueries((), 0, (), ()),
    ModelPredictions("good", "1", "w-1", (), (), (), None, (), 0, 0, 0, 0),
    Prediction("q-1", "nobody", None, None, Status.DEFAULT, "unknown_application", None, 0.0, (), 0, 0, 0, 0),
    Feedback("q-1"),
    Observation("q-1", "digits", None, DECISION, (), None, None, JoinStatus.JOINED, 0, -1),
    Observations(()),
    Application("digits", ()),
    Model("good", "1", "function", "", "", "value", None, ()),
    Report("", "", 0, {}, {}),
    PolicyState("single()", (), 0, ()),
    Candidate("policy", "digits", "thompson()", "exp3()", 0, ()),
    Promotion("policy", "digits", "thompson()", "exp3()", 0, 0, "begin", 0.0, ""),
    Profile("good", "1", (), ()),
    Plan("small", 0, 0, 0, (), (), ""),
    Features(()),
    KeyedFeedback("", "digits", "ann", 1),
    MetricFeedback("q-1", "revenue", 0.0),
    Measurements(()),
)

ALL = FULL + BARE


def name_of(record: object) -> str:
    """Name a sample in a test's id."""
    return type(record).__name__


def model_query(query_id: str, reply_partition: int, due_us: int, given: Input) -> ModelQueries:
    """Ask a model one thing."""
    row = Tensor(given.dtype, (1, *given.shape), given.data) if isinstance(given, Tensor) else (given,)
    return ModelQueries((query_id,), reply_partition, (due_us,), row)
