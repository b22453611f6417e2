"""What models with one trunk have in common: what their batches taught, and how late a joint batch is."""

from __future__ import annotations

from policies.fixed import Fixed
from schemas.codec import Codec
from schemas.records import Model
from workers.kernel.model.batcher import Batcher
from workers.kernel.model.lane import Lane, lane_of
from workers.kernel.model.offers import Trunks
from workers.kernel.model.results import Identity
from workers.settings import WorkerSettings

MS = 1_000


def model(name: str, trunk: str = "t") -> Model:
    """Return a model with a trunk."""
    return Model(name, "1", "torch", "", "", "label", "float32", (1,), trunk=trunk)


def lane(name: str, settings: WorkerSettings | None = None) -> Lane:
    """Return the lane of a model."""
    return lane_of(Codec(), Identity(name, "1", "one"), settings or WorkerSettings(1))


def test_what_one_head_learns_of_batches_holds_for_all_on_its_trunk() -> None:
    """Cap and times are the trunk's; another trunk has its own, and so has a head that leaves."""
    trunks, one, two, other = Trunks(WorkerSettings(1)), lane("one"), lane("two"), lane("other")
    assert [trunks.of(one, model("one")), trunks.of(two, model("two"))] == ["t", "t"]
    assert trunks.of(other, model("other", "u")) == "u"
    for now_us in range(0, 100 * MS, MS):
        one.batcher.done(one.batcher.cap, 100, now_us)
    assert one.batcher.cap == two.batcher.cap > other.batcher.cap == 1
    assert two.batcher.learnt.times.predict(1) == 100
    assert trunks.of(two, model("two", "")) == ""
    assert two.batcher.cap == 1


def test_a_model_of_allowed_sizes_shares_no_trunk() -> None:
    """Its batches have sizes of their own."""
    settings = WorkerSettings(1, allowed_batch_sizes={"one": (1, 8)})
    assert Trunks(settings).of(lane("one", settings), model("one")) == ""


def test_a_row_that_the_whole_batch_would_answer_too_late_expires() -> None:
    """Although the model's own part would be done in time."""
    batcher = Batcher[str](Fixed(16))
    batcher.done(1, 2 * MS, 0)
    batcher.done(16, 20 * MS, 20 * MS)
    batcher.offer([(30 * MS, "urgent"), (110 * MS, "not")], 20 * MS)
    alone = batcher.take_now(20 * MS, 2, 0)
    assert len(alone.rows) == 2
    batcher.put_back(alone.rows)
    joint = batcher.take_now(20 * MS, 2, 0, 16)
    assert [row.item for row in joint.rows] == ["not"]
    assert [row.item for row in joint.expired] == ["urgent"]
