"""What the simulator's ledger takes for the answer that is learnt from."""

from __future__ import annotations

from load.research.seeds.ledger import Ledger
from load.research.seeds.plan import plan
from schemas import topics
from schemas.codec import Codec
from schemas.records import Decision, Prediction, Status
from streams.operators.contract import Record
from streams.testing.broker import FakeBroker
from streams.testing.stores import SharedStore
from streams.testing.virtual import run
from tests.samples import ALL

CODEC = Codec()


def test_a_late_answer_with_a_decision_is_learnt_from_behind_one_without() -> None:
    """A process that stood still answers, after another has said that the query had expired."""
    decided = next(each for each in ALL if isinstance(each, Prediction) and isinstance(each.decision, Decision))
    expired = decided._replace(status=Status.DEFAULT, reason="expired", outputs=(), decision=None)

    async def noted() -> Ledger:
        seed = plan(1)
        ledger = Ledger(seed, FakeBroker(), SharedStore(), CODEC, 0)
        for offset, each in enumerate((expired, decided, decided._replace(status=Status.DEFAULT))):
            ledger.on_record(Record(topics.PREDICTIONS, 0, offset, offset, None, CODEC.encode(each)))
        return ledger

    ledger = run(noted())
    assert ledger.answers[decided.query_id].position.offset == 0
    assert ledger.decided[decided.query_id].position.offset == 1
