"""The learner over columns: common observations are folded in C, everything else by its kernel, in order.

run of a partition ─▶ learning.pyx reads ─▶ all states are there? ─▶ folds, and leaves to `learn.kernel.Run`
                                                  └─ no ─▶ the kernel asks for them
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from policies import registry
from policies.class_vote import ClassVote
from policies.contract import has_shared_prior
from policies.discounted_ucb import DiscountedUcb
from policies.epsilon_greedy import EpsilonGreedy
from policies.errors import PolicyError
from policies.exp3 import Exp3
from policies.exp4 import Exp4
from policies.single import Single
from policies.thompson import Thompson
from policies.timely import Timely
from policies.ucb1 import Ucb1
from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Observations
from streams.columns.batches import written
from streams.columns.behind import Behind, unpacked
from streams.columns.figures import figures
from streams.columns.join_forms import example, join_forms, voted
from streams.columns.learning import KINDS, Form, Learning
from streams.operators.contract import Batch, FetchStates, WriteStates, end_of
from streams.operators.learn.kernel import WRITE_NUMBERS, FoldRun, Learner, gather

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from schemas.codec import Codec
    from schemas.records import Observation, PolicyState
    from streams.columns.behind import Unpack
    from streams.operators.contract import Effects, Record
    from streams.operators.learn.kernel import LearnerPartition

_COMPILED: Final = (ClassVote, DiscountedUcb, EpsilonGreedy, Exp3, Exp4, Single, Thompson, Timely, Ucb1)


def columns_for_learner(kernel: Learner, codec: Codec, unpack: Unpack) -> ColumnLearner | None:
    """Return the learner that takes batches of observations, too.

    Args:
        kernel: that takes what is not common; it has had no records yet.
        codec: of the deployment.
        unpack: returns the wanted records of a batch.

    Returns:
        None where the records are not what columns read.
    """
    of_one, policy = [example(label, None, f"q{label}").observation for label in range(4)], registry.spec(Exp3())
    of_one = [one._replace(decision=one.decision._replace(policy=policy)) for one in of_one]
    of_all = [voted((label, label % 2, "text"), f"q{label}").observation for label in range(4)]
    is_common = all(_are_read(codec, unpack, seen) for seen in (of_one, of_all))
    return ColumnLearner(kernel, codec, unpack) if is_common else None


def _are_read(codec: Codec, unpack: Unpack, seen: Sequence[Observation]) -> bool:
    """Tell whether columns make of four examples what the kernel makes of them, and read them themselves."""
    values = [codec.encode(record) for record in (seen[0], seen[1], Observations(tuple(seen[2:])))]
    batch = written([(None, value) for value in values], 1)
    alone, columns = Learner(codec), ColumnLearner(Learner(codec), codec, unpack)
    expected = _learnt(alone, [unpack(Batch(topics.OBSERVATIONS, 0, 0, 3, batch))])
    # A state that there is not yet is the kernel's.
    found = _learnt(columns, [[Batch(topics.OBSERVATIONS, 0, at, end, batch)] for at, end in ((0, 1), (1, 3))])
    return found == expected and columns.taken == len(seen) - 1


def _learnt(learner: Learner | ColumnLearner, polls: Sequence[Sequence[Record | Batch]]) -> Mapping[str, PolicyState]:
    """Return the states after some polls of a partition of which nothing is stored."""
    learner.on_partitions({0: 0})
    states: dict[str, PolicyState] = {}
    for poll in polls:
        effects = learner.on_records(poll, 1)  # type: ignore[arg-type]  # a learner's have no batches
        fetched = [key for effect in effects if isinstance(effect, FetchStates) for key in effect.keys]
        for effect in effects + learner.on_states(dict.fromkeys(fetched), 1):
            if isinstance(effect, WriteStates):
                states.update(effect.states)
    return states


class ColumnLearner(Behind):
    """The learner over columns.

    Args:
        kernel: that takes what is not common.
        codec: of the deployment.
        unpack: returns the wanted records of a batch.
    """

    def __init__(self, kernel: Learner, codec: Codec, unpack: Unpack) -> None:
        super().__init__(kernel)
        self._learner = kernel
        self._codec = codec
        self._unpack = unpack
        forms = join_forms(codec)
        self._columns = Learning((forms.one, forms.several), codec.max_bytes, _form, unpack, self._decoded)

    @property
    def taken(self) -> int:
        """How many observations were folded here."""
        return sum(self._columns.taken.values())

    def on_records(self, records: Sequence[Record | Batch], now_us: int) -> Effects:
        """Take a poll's records and batches, in order within each partition."""
        effects: Effects = []
        runs: dict[int, list[Record | Batch]] = {}
        for item in records:
            runs.setdefault(item[1], []).append(item)
        for number, run in runs.items():
            is_folded = self._fold(number, run, now_us, effects)
            if not is_folded and self._learner.enqueue(number, unpacked(run, self._unpack), effects):
                self._learner.advance(number, now_us, effects)
        self._learner.trim()
        return effects

    def statistics(self) -> Mapping[str, float]:
        """Return the kernel's, and how many observations went by columns, and how many did not, and why."""
        return {**super().statistics(), **figures(self._columns.taken, self._columns.left)}

    def _fold(self, number: int, run: list[Record | Batch], now_us: int, effects: Effects) -> bool:
        """Fold a run of one partition; False where the kernel has to ask for states first, or waits for some."""
        learner = self._learner
        partition = learner.partitions.get(number)
        if partition is None:
            return True  # it is another learner's
        if partition.queue:
            return False
        others: dict[str, None] = {}
        needed = self._columns.read(run, partition.start, partial(self._left, partition, others, effects))
        needed |= others
        states = learner.states.known(number, needed)
        if len(states) < len(needed):
            return False
        folding = FoldRun(learner, number, partition, states)
        self._columns.fold(folding, states, partition, learner, WRITE_NUMBERS, effects)
        end = end_of(run[-1])
        if end > partition.start:
            partition.checked_us = now_us
            folding.end(end, effects)
        return True

    def _left(
        self, partition: LearnerPartition, needed: dict[str, None], effects: Effects, record: Record
    ) -> Callable[[FoldRun], None]:
        """Return how the kernel folds a record, once all states are there; those that it needs are added."""
        is_read_back = record.offset < partition.start
        try:
            observations = self._decoded(record)
        except DecodeError as error:
            fault = error
            return lambda _: self._learner.note_undecodable(record, fault, effects if not is_read_back else [])
        if is_read_back:
            return lambda _: partition.note_seen(record, observations)
        gather(needed, observations)
        return lambda run: run.take(record, observations, effects)

    def _decoded(self, record: Record) -> Sequence[Observation]:
        return self._codec.decode(Observations, record.value).items


def _form(policy: str, arms: tuple[str, ...]) -> Form | None:
    """Return how a policy learns about arms, where that is compiled."""
    try:
        made = registry.parse(policy)
    except PolicyError:
        return None
    if type(made) not in _COMPILED or len(set(arms)) < len(arms) or (isinstance(made, Exp3) and not made.share):
        return None
    eta = made.eta if isinstance(made, Exp3 | Exp4) else 0.0
    if isinstance(made, DiscountedUcb | ClassVote):
        eta = made.discount
    share = made.share if isinstance(made, Exp3 | Exp4) else 0.0
    classes = made.classes if isinstance(made, ClassVote) else 0
    return Form(policy, arms, KINDS[made.name], eta, share, has_shared_prior(made), classes)
