"""Select over columns: the plain queries of a poll are decided, asked and answered in one call.

    Batch ─▶ Poll ─▶ runs ─┬─ of plain rows ─▶ arms drawn ─▶ models asked here ─▶ EmitBatch, Span
    Record ────────────────┴─ of all others ─▶ records ────▶ the kernel behind it

Which queries are plain `plain` says by application, and `selection.pyx` by what is in their bytes.
Nothing is decided here that the kernel would decide otherwise: the same draw, the same answer, the same bytes. What a
model is not sure to answer in a millisecond, or answers otherwise than with one number or text a row, is the kernel's.
"""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

import numpy as np

from schemas import topics
from schemas.errors import DecodeError, SchemaError
from schemas.records import Decision, ModelOutput, Outcome, Query, Status, Tensor
from streams.columns import selection as compiled
from streams.columns.answer_columns import KINDS, said
from streams.columns.ask import AskedElsewhere, Decides, TakenRows
from streams.columns.batches import Slices
from streams.columns.behind import Behind
from streams.columns.pieces import ArmPieces, Uncut, answer_form, decided, late_form, query_form, text, together_form
from streams.columns.plain import Answers, PlainQueries, asks_all
from streams.operators.contract import NONE_UNREAD, Batch, EmitBatch, Load, Position, Predict, Skip, Span, Unload
from streams.operators.selection.kernel import MARGIN_PART, MARGIN_US
from streams.operators.statistics import BY_COLUMNS, MAX_LABELS, NOT_BY_COLUMNS, render
from streams.operators.times import sent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from schemas.codec import Codec
    from schemas.records import Prediction
    from streams.columns.behind import Unpack
    from streams.columns.pieces import AnswerForm, LateForm, TogetherForm
    from streams.columns.selection import Answered, Lane, Poll, Recent, State
    from streams.operators.configuration import Deployed
    from streams.operators.contract import AskNow, Effects, Needs, Operator, Predicted, Record, StateKey, Unread
    from streams.operators.ids import Generations
    from streams.operators.selection.kernel import Selection
    from streams.operators.selection.pending import Quotas
    from streams.operators.selection.state_view import Arms

LEFT = "queries_left_total"  # to the kernel, by why
TIMED = "timed"  # why: an application in this role goes by latencies, for which each batch is timed
# A poll in which plain queries and others take turns more often than this is the kernel's: each turn is a call.
MOST_RUNS = 8
# Of a record batch that is written: what a topic takes by default holds two.
MOST_BYTES = 1 << 19
_FOLLOWED = frozenset({topics.APPLICATIONS, topics.MODELS})
# So many records are looked at for the form of inputs.
_LOOKED_AT = 2
# So many applications are answered by columns: each query's name is compared with theirs.
MOST_LANES = 256
# Of an ensemble, so many different answers of all models are kept for a state; and so many in a poll are worth it.
MOST_TOGETHER, MOST_CODES = 1_024, 16
# So many states of an application are kept as columns have them: some hundred bytes each.
MOST_STATES = 20_000
_SAMPLE = Decision((0,), 1, "sample", "single", ("model",), (1.0,))


def columns_for_selection(
    kernel: Operator,
    selection: Selection,
    models: Mapping[str, Inside],
    codec: Codec,
    unpack: Unpack,
    margin_us: int | None = None,
    ask: AskNow | None = None,
) -> ColumnSelection | None:
    """Return selection that takes batches of queries, too; arguments are those of `ColumnSelection`.

    Returns:
        None where numbers do not lie in memory as they travel, or records are not what columns read and write.
    """
    if sys.byteorder != "little":
        return None
    try:
        query_form(codec, "sample", "float32", (4,))
        answer_form(codec, "sample", ArmPieces(_SAMPLE, "model", "1"), int)
    except (Uncut, SchemaError):
        return None
    return ColumnSelection(kernel, selection, models, codec, unpack, margin_us, ask)


class DirectModel(Protocol):
    """Whom to ask at once."""

    @property
    def version(self) -> str:
        """The version that answers."""
        ...

    @property
    def copy(self) -> int:
        """Which copy of it."""
        ...

    @property
    def patience_us(self) -> int:
        """After how long it counts as hung."""
        ...


class Inside(Protocol):
    """The kernel of a model in this process."""

    def direct(self, now_us: int) -> DirectModel | None:
        """Return whom to ask beside the model's queue; None = nobody."""
        ...

    def on_answered(self, rows: Tensor, took_us: int, now_us: int) -> None:
        """Take that all rows have been answered, which were read at a time."""
        ...


_Given = tuple[str, "int | float | str"]  # a version, and its answer


class _ModelRun(NamedTuple):
    """What a model has answered: which version, its results, and how long it took."""

    version: str
    results: Predicted
    took_us: int


class _AnswerCodes(NamedTuple):
    """What all models have answered, row by row.

    Attributes:
        codes: of each row, as whole numbers of 64 bits: the place of its answers.
        answers: those that are different, an answer a model each.
    """

    codes: bytes
    answers: list[tuple[int | float | str, ...]]


class _Decider(NamedTuple):
    """The arms in a state, and the same in C.

    Attributes:
        arms: in the state.
        state: in C.
        together: how answers are written that all models gave, by versions and answers.
        elsewhere: how decisions are written of queries that are asked elsewhere.
    """

    arms: Arms
    state: State
    together: dict[tuple[_Given, ...], TogetherForm | None]
    elsewhere: Decides


@dataclass(slots=True)
class _ColumnApplication:
    """One that columns answer, as far as its form is known.

    Attributes:
        deployed: the application.
        form: element type and shape of its inputs; no type = not known yet.
        is_outside: its models run in workers.
        lane: in C; None = the form is not known, or cannot be read.
        states: by context, those lately used, the last one last.
        forms: of its answers, by arm, version and kind.
        deciding: states of the poll's rows.
        why: it has no lane, if that is known.
        late: how answers are written to what came too late; None = not known yet.
    """

    deployed: Deployed
    form: tuple[str, tuple[int, ...]] = ("", ())
    is_outside: bool = False
    lane: Lane | None = None
    states: OrderedDict[str | None, _Decider] = field(default_factory=OrderedDict)
    forms: dict[tuple[int, str, int], AnswerForm] = field(default_factory=dict)
    deciding: list[_Decider] = field(default_factory=list)
    why: str = ""
    late: LateForm | None = None


class ColumnSelection(Behind):
    """Selection with models inside, over columns.

    Args:
        kernel: takes all that is not plain: selection and the models' kernels.
        selection: in `kernel`.
        models: kernels of the models inside, by name.
        codec: of the deployment.
        unpack: returns the records of a batch.
        margin_us: as selection's setting.
        ask: asks models at once; None = that cannot be.
    """

    def __init__(
        self,
        kernel: Operator,
        selection: Selection,
        models: Mapping[str, Inside],
        codec: Codec,
        unpack: Unpack,
        margin_us: int | None = None,
        ask: AskNow | None = None,
    ) -> None:
        super().__init__(kernel)
        self._selection = selection
        self._plain = PlainQueries(selection)
        self._models = models
        self._codec = codec
        self._unpack = unpack
        self._margin_us = -1 if margin_us is None else margin_us
        self._ask = ask
        self._applications: dict[str, _ColumnApplication] = {}
        self._whys: dict[str, str] = {}
        self._is_changed = True
        self._slices = Slices()
        self._answered: Counter[str] = Counter()  # by application
        self._elsewhere = AskedElsewhere(self._plain, codec)
        self._left: Counter[str] = Counter()  # by why
        self._owed: Effects = []  # by models, from calls that failed

    def on_records(self, records: Sequence[Record | Batch], now_us: int) -> Effects:
        """Take a poll's records, in order; what models want is performed even if that fails."""
        effects: Effects = []
        try:
            self._take(records, now_us, effects)
        except Exception:
            self._owed += [effect for effect in effects if isinstance(effect, Predict | Load | Unload)]
            raise
        return self._with_owed(effects)

    def _with_owed(self, effects: Effects) -> Effects:
        """Return effects behind those of calls that failed: models outlive selection's memory, and wait for them."""
        owed, self._owed = self._owed, []
        return owed + effects if owed else effects

    def _take(self, records: Sequence[Record | Batch], now_us: int, effects: Effects) -> None:
        self._elsewhere.give_due(-1)
        for is_batch, run in groupby(records, lambda record: record.__class__ is Batch):
            if is_batch:
                self._on_batches(cast("list[Batch]", [*run]), now_us, effects)
            else:
                self._on_others(cast("list[Record]", [*run]), now_us, effects)

    def _on_others(self, records: list[Record], now_us: int, effects: Effects) -> None:
        self._is_changed = self._is_changed or not _FOLLOWED.isdisjoint({record.topic for record in records})
        left: list[Record] = []
        for record in records:
            answers = self._elsewhere.read(record) if record.topic == topics.MODEL_PREDICTIONS else None
            if answers is not None and left:  # who comes first is answered first
                effects += self._kernel.on_records(left, now_us)
                left = []
            if answers is None or not self._elsewhere.on_outputs(record, answers, now_us, effects):
                left.append(record)
        if left:
            effects += self._kernel.on_records(left, now_us)

    def on_timer(self, now_us: int, unread: Unread = NONE_UNREAD) -> Effects:
        """Give the kernel what is due first."""
        self._elsewhere.give_due(now_us)
        return self._with_owed(super().on_timer(now_us, unread))

    def on_partitions(self, starts: Mapping[int, int | None]) -> None:
        """Forget what waits of these partitions."""
        self._elsewhere.drop(starts)
        super().on_partitions(starts)

    def needs(self) -> Needs:
        """Return the kernel's needs, and when what waits here is due."""
        needs, due_us = super().needs(), 0 if self._owed else self._elsewhere.next_due()
        if due_us is None or (needs.deadline_us is not None and needs.deadline_us <= due_us):
            return needs
        return needs._replace(deadline_us=due_us)

    def _on_batches(self, batches: list[Batch], now_us: int, effects: Effects) -> None:
        """Answer what is plain, and leave the rest, run by run."""
        self._plain.quotas.set_limits()
        self._follow()
        its = [(each, each.lane) for each in self._applications.values() if each.lane is not None][:MOST_LANES]
        lanes = [each for each, _ in its]
        left = _Left(batches, self._unpack)
        try:
            poll = compiled.Poll(batches, tuple([lane for _, lane in its]), now_us, self._slices)
        except ValueError:
            records = left.all()
            self._left["application" if not its else "batch"] += len(records)
            self._learn_forms(records)
            effects += self._kernel.on_records(records, now_us)
            return
        for number in poll.late():
            self._answer_late(poll, lanes, number, now_us, effects)
        wanted: list[StateKey] = []
        for number in poll.lanes_of(0, poll.count):
            if self._plain.is_timed():
                poll.leave(0, number, TIMED)
            elif not self._draws(poll, number, lanes[number], now_us, wanted):
                poll.leave(0, number, "state")
        outside = {number for number in poll.lanes_of(0, poll.count) if lanes[number].is_outside}
        if len(outside) > 1:
            poll.leave_shared(outside)
        self._take_turns(poll, lanes, left, now_us, effects)
        self._selection.fetch(wanted, now_us, effects)
        self._note_left(poll, left)

    def _answer_late(
        self, poll: Poll, lanes: list[_ColumnApplication], number: int, now_us: int, effects: Effects
    ) -> None:
        """Answer the rows of an application by default whose time was over when they came."""
        its, plain = lanes[number], self._plain
        name = its.deployed.application.name
        form = None if self._may_forget(name, poll) else self._late_form(its)
        if form is None:
            poll.leave_late(number)
            return
        held = _Recents(lanes, plain.quotas)
        messages = [text(sent(ago_us, has_clock=has)) for ago_us, has in poll.ages(number)]
        answered = poll.answer_late(number, tuple(form), messages, held, MOST_BYTES)
        held.give_back()
        _emit(answered, effects)
        plain.count_late(name, Answers({}, *answered.of(number)[1:]), now_us)
        self._answered[name] += len(answered.of(number)[2])

    def _late_form(self, its: _ColumnApplication) -> LateForm | None:
        """Return how late rows are answered, each with how long ago it was sent; None: that has no column form."""
        if its.late is None:
            answer = partial(self._plain.late, its.deployed)
            try:
                its.late = late_form(self._codec, its.deployed.application.name, answer)
            except (Uncut, SchemaError):
                return None
        return its.late

    def _draws(self, poll: Poll, number: int, its: _ColumnApplication, now_us: int, wanted: list[StateKey]) -> bool:
        """Tell whether an application answers now, and have it draw by its states as they were read last."""
        plain, application, lane = self._plain, its.deployed.application, its.lane
        places = poll.places_of(number) if its.is_outside else 1
        if lane is None or not plain.has_room(application.name, places):
            return False
        if its.is_outside and not plain.admits(its.deployed, poll.count):
            return False
        contexts = poll.contexts(number) if application.per_context else [None]
        found = [self._decider(its, context, now_us, wanted) for context in contexts]
        known = [decider for decider in found if decider is not None]
        if not known:
            return False
        if len(known) < len(found):
            unknown = {place for place, decider in enumerate(found) if decider is None}
            poll.leave_states(number, unknown, self._may_forget(application.name, poll))
        its.deciding = [decider or known[0] for decider in found]
        lane.decide_by(tuple([decider.state for decider in its.deciding]), asks_all(known[0].arms))
        return True

    def _may_forget(self, name: str, poll: Poll) -> bool:
        """Tell whether ids of an application may be forgotten within a poll: then it matters which row comes first.

        Else a row that waits for its state changes nothing for the others but that it is known, whenever it comes.
        """
        recent = self._plain.quotas.by_name[name].recent
        return any(recent.of(number).size + poll.count >= recent.capacity for number in poll.partitions())

    def _decider(
        self, its: _ColumnApplication, context: str | None, now_us: int, wanted: list[StateKey]
    ) -> _Decider | None:
        """Return what decides queries with a context; None: it has not been read, or asks otherwise."""
        arms = self._plain.arms(its.deployed, context, now_us, wanted)
        if arms is None:
            return None
        known = its.states.get(context)
        if known is None or known.arms is not arms:
            known = its.states[context] = _Decider(arms, compiled.State(arms.cumulative), {}, Decides(arms, {}))
            if len(its.states) > MOST_STATES:
                its.states.popitem(last=False)
        its.states.move_to_end(context)
        return known

    def _take_turns(
        self, poll: Poll, lanes: list[_ColumnApplication], left: _Left, now_us: int, effects: Effects
    ) -> None:
        """Answer the runs of plain rows, and give the kernel the others, in order."""
        if any(lanes[number].is_outside for number in poll.lanes_of(0, poll.count)):
            self._plain.next_turn()
        runs = [*poll.runs(), (False, poll.count)]
        if len(runs) > MOST_RUNS + 1:
            for number in poll.lanes_of(0, poll.count):
                poll.leave(0, number, "turns")
            effects += self._kernel.on_records(left.some(poll.hand_over(poll.count)), now_us)
            return
        for (is_left, begin), (_, end) in pairwise(runs):
            if is_left:
                effects += self._kernel.on_records(left.some(poll.hand_over(end)), now_us)
            else:
                self._answer(poll, _RowRun(begin, end, lanes), left, now_us, effects)
        if waiting := poll.hand_over(poll.count):
            effects += self._kernel.on_records(left.some(waiting), now_us)

    def _answer(self, poll: Poll, run: _RowRun, left: _Left, now_us: int, effects: Effects) -> None:
        """Answer a run; applications whose models do not answer now are left to the kernel."""
        begin, end, _ = run
        took_us, answering = 0, list[int]()
        for number in sorted(poll.lanes_of(begin, end)):
            if run.lanes[number].is_outside:
                self._ask_elsewhere(poll, run, number, now_us, effects)
                continue
            lane_us = self._ask_models(poll, run, number, now_us)
            if lane_us is None:
                poll.leave(begin, number, "model")
            else:
                took_us += lane_us
                answering.append(number)
        if answering:
            self._write(poll, run, answering, now_us + took_us, effects)
        if poll.is_left(begin, end):
            effects += self._kernel.on_records(left.some(poll.hand_over(end)), now_us)

    def _ask_elsewhere(self, poll: Poll, run: _RowRun, number: int, now_us: int, effects: Effects) -> None:
        """Ask the workers of an application's rows, which wait from now on."""
        its, held = run.lanes[number], _Recents(run.lanes, self._plain.quotas)
        taken = TakenRows(*poll.take(run.begin, run.end, number, held))
        held.give_back()
        by = [decider.elsewhere for decider in its.deciding]
        self._elsewhere.ask(its.deployed, by, its.form, taken, now_us, effects)

    def _ask_models(self, poll: Poll, run: _RowRun, number: int, now_us: int) -> int | None:
        """Ask the models of an application's rows; returns how long they took (us), None = they are left."""
        its = run.lanes[number]
        found = poll.ask(run.begin, run.end, number)
        if found and asks_all(its.deciding[0].arms):
            return self._ask_all(
                poll, run, number, Tensor(its.form[0], (found[0][1], *its.form[1]), found[0][2]), now_us
            )
        took_us, asked = 0, dict[int, tuple[str, int]]()
        for arm, count, numbers in found:
            dtype, shape = its.form
            ran = self._ask_arm(its, arm, Tensor(dtype, (count, *shape), numbers), now_us)
            if ran is None:
                return None
            took_us += ran[0]
            asked[arm] = ran[1:]
        for place, arm in poll.decided(run.begin, run.end, number):
            if not self._is_decided(its, its.deciding[place], arm, *asked[arm]):
                return None
        return took_us

    def _ask_arm(self, its: _ColumnApplication, arm: int, rows: Tensor, now_us: int) -> tuple[int, str, int] | None:
        """Have a lane say what an arm's model answers.

        Returns:
            How long it took (us), its version, and the kind of its answers; None = it does not answer now.
        """
        arms, name = its.deciding[0].arms, its.deployed.application.name
        model = arms.names[arm]
        ran = self._ask_model(its, model, rows, now_us)
        if its.lane is None or ran is None:
            return None
        if (answered := said(ran.results.answers, ran.results.outcomes)) is None:
            return None
        key = arm, ran.version, answered.kind
        if key not in its.forms:
            asked = ArmPieces(arms.choices[arm].decision, model, ran.version)
            try:
                its.forms[key] = answer_form(self._codec, name, asked, KINDS[answered.kind])
            except (Uncut, SchemaError):
                return None
        its.lane.say(arm, rows.shape[0], answered.kind, answered.answers, tuple(its.forms[key]))
        self._models[model].on_answered(rows, ran.took_us, now_us)
        return ran.took_us, ran.version, answered.kind

    def _ask_model(self, its: _ColumnApplication, model: str, rows: Tensor, now_us: int) -> _ModelRun | None:
        """Ask a model at once; None: it does not answer now, or gives more than answers."""
        whom = self._models[model].direct(now_us)
        ran = None if whom is None or self._ask is None else self._ask(model, whom.copy, rows, whom.patience_us)
        if whom is None or ran is None:
            return None
        answers, scores = ran[0].answers, ran[0].scores
        if scores is not None or (not isinstance(answers, tuple) and answers.dtype.names):  # several tensors
            self._give_up(its, "answers" if scores is None else "scores")
            return None
        return _ModelRun(whom.version, *ran)

    def _give_up(self, its: _ColumnApplication, why: str) -> None:
        """Leave an application to the kernel until it changes: else its models would be asked twice each time."""
        name = its.deployed.application.name
        self._whys[name] = why
        self._applications.pop(name, None)

    def _ask_all(self, poll: Poll, run: _RowRun, number: int, rows: Tensor, now_us: int) -> int | None:
        """Ask all models about all rows; returns how long they took (us), None = the rows are left."""
        its = run.lanes[number]
        names = its.deciding[0].arms.names
        if any(self._models[name].direct(now_us) is None for name in names):
            return None  # before the others compute for nothing
        ran = [self._ask_model(its, name, rows, now_us) for name in names]
        known = [each for each in ran if each is not None]
        if its.lane is None or len(known) < len(names):
            return None
        if any(said(each.results.answers, each.results.outcomes) is None for each in known):
            return None
        coded = _coded([each.results for each in known])
        if coded is None:
            self._give_up(its, "answers")
            return None
        versions = [each.version for each in known]
        middles: list[bytes | None] = [None] * (len(its.deciding) * len(coded.answers))
        form: TogetherForm | None = None
        for state, code in poll.coded(run.begin, run.end, number, coded.codes):
            given = tuple(zip(versions, coded.answers[code], strict=True))
            form = self._together(its, its.deciding[state], given)
            if form is None:
                return None
            middles[state * len(coded.answers) + code] = form.middle
        if form is not None:
            its.lane.say_together(len(coded.answers), coded.codes, middles, form.head, form.tail)
        for name, each in zip(names, known, strict=True):
            self._models[name].on_answered(rows, each.took_us, now_us)
        return sum([each.took_us for each in known])

    def _together(self, its: _ColumnApplication, decider: _Decider, given: tuple[_Given, ...]) -> TogetherForm | None:
        """Return how an answer of all models is written, as the kernel makes it; None: it has no column form."""
        if given not in decider.together:
            arms, plain, name = decider.arms, self._plain, its.deployed.application.name
            ok = Outcome.OK
            outputs = [
                ModelOutput(model, *each[:1], ok, each[1]) for model, each in zip(arms.names, given, strict=True)
            ]
            if len(decider.together) >= MOST_TOGETHER:
                decider.together.clear()
            try:
                form = together_form(
                    self._codec, name, lambda asked: _complete(plain.together(its.deployed, arms, outputs, asked))
                )
            except (Uncut, SchemaError):
                form = None
            decider.together[given] = form
        return decider.together[given]

    def _is_decided(self, its: _ColumnApplication, decider: _Decider, arm: int, version: str, kind: int) -> bool:
        """Have a state's decision for an arm written once; False: it has no column form."""
        if not decider.state.is_decided(arm, kind):
            name, arms = its.deployed.application.name, decider.arms
            asked, form = ArmPieces(arms.choices[arm].decision, arms.names[arm], version), its.forms[arm, version, kind]
            try:
                decider.state.decide(arm, kind, decided(self._codec, name, asked, KINDS[kind], form))
            except (Uncut, SchemaError):
                return False
        return True

    def _write(self, poll: Poll, run: _RowRun, lanes: Iterable[int], answered_us: int, effects: Effects) -> None:
        """Write the answers of a run, and count them."""
        plain, held = self._plain, _Recents(run.lanes, self._plain.quotas)
        answered: Answered = poll.answer(run.begin, run.end, answered_us, held, MOST_BYTES)
        held.give_back()
        _emit(answered, effects)
        for number in lanes:
            its, given = run.lanes[number], answered.of(number)
            name, names = its.deployed.application.name, its.deciding[0].arms.names
            all_of = names if asks_all(its.deciding[0].arms) else ()
            asked = {all_of or (names[arm],): count for arm, count in enumerate(given[0]) if count}
            plain.count(name, Answers(asked, *given[1:]), answered_us)
            self._answered[name] += len(given[2])

    def _note_left(self, poll: Poll, left: _Left) -> None:
        """Count what was left by why; learn the form of inputs where many are of another."""
        whys = poll.whys()
        for why, count in whys.items():
            self._left[why] += count
        if 2 * (whys["input"] + whys["application"]) > poll.count:
            self._learn_forms(left.all()[:_LOOKED_AT])

    def _follow(self) -> None:
        """Follow what is deployed."""
        if not self._is_changed:
            return
        self._is_changed = False
        known, self._applications, self._whys = self._applications, {}, {}
        for name, deployed in self._plain.applications().items():
            if isinstance(deployed, str):
                self._whys[name] = deployed
            elif name in known and known[name].deployed is deployed:
                self._applications[name] = known[name]
            else:
                form = known[name].form if name in known else ("", ())
                self._applications[name] = self._made(deployed, form)

    def _made(self, deployed: Deployed, form: tuple[str, tuple[int, ...]]) -> _ColumnApplication:
        """Return an application whose inputs have this form, if it is known and can be read."""
        made = _ColumnApplication(deployed, form, self._plain.is_outside(deployed), why="form" if form[0] else "")
        if form[0] and not (made.is_outside and not self._elsewhere.fits(form)):
            name = deployed.application.name
            try:
                pieces = query_form(self._codec, name, *form)
            except (Uncut, SchemaError):
                return made
            margins = MARGIN_PART, MARGIN_US
            slo = deployed.slo_us, deployed.longest_us, self._margin_us
            made.lane = compiled.Lane(name.encode(), tuple(pieces), *slo, margins)
        return made

    def _learn_forms(self, records: Sequence[Record]) -> None:
        """Learn the form of inputs from what clients ask."""
        for record in records[:_LOOKED_AT] if self._applications else ():
            try:
                query = self._codec.decode(Query, record.value)
            except DecodeError:
                continue
            its = self._applications.get(query.application)
            if its is not None and not isinstance(query.input, Tensor):
                its.why = its.why or "input"
            elif its is not None and isinstance(query.input, Tensor):
                form = query.input.dtype, query.input.shape
                if form != its.form:
                    self._applications[query.application] = self._made(its.deployed, form)

    def statistics(self) -> Mapping[str, float]:
        """Return the kernel's, and what went by columns."""
        answered = self._answered + self._elsewhere.answered
        by_name = {render((BY_COLUMNS, "application", name)): float(count) for name, count in answered.items()}
        unread = {name: each.why for name, each in self._applications.items() if each.why and each.lane is None}
        timed = dict.fromkeys(self._applications, TIMED) if self._plain.is_timed() else {}
        known = {**self._whys, **unread, **timed}
        whys = {render((NOT_BY_COLUMNS, "application", name, "why", why)): 1.0 for name, why in known.items()}
        left = {render((LEFT, "why", why)): float(count) for why, count in self._left.items() if count}
        figures = super().statistics()
        waiting = {"pending": figures["pending"] + len(self._elsewhere)}
        return {**figures, **waiting, **by_name, **dict([*whys.items()][:MAX_LABELS]), **left}


class _RowRun(NamedTuple):
    """Rows of a poll, one behind the other, and the applications by their lanes' numbers."""

    begin: int
    end: int
    lanes: list[_ColumnApplication]


class _Left:
    """The records of a poll's batches, unpacked when they are wanted."""

    def __init__(self, batches: list[Batch], unpack: Unpack) -> None:
        self._batches = batches
        self._unpack = unpack
        self._records: dict[int, list[Record]] = {}

    def all(self) -> list[Record]:
        """Return all of them."""
        return [record for number in range(len(self._batches)) for record in self._of(number)]

    def some(self, places: Iterable[tuple[int, int]]) -> list[Record]:
        """Return those at these places: the number of a batch, and an offset."""
        return [self._of(number)[offset - self._batches[number].offset] for number, offset in places]

    def _of(self, number: int) -> list[Record]:
        if number not in self._records:
            self._records[number] = self._unpack(self._batches[number])
        return self._records[number]


class _Recents:
    """The ids of applications by partition, lent to C while a run's answers are written."""

    def __init__(self, lanes: Sequence[_ColumnApplication], quotas: Quotas) -> None:
        self._lanes = lanes
        self._quotas = quotas
        self._lent: dict[tuple[int, int], tuple[Recent, Generations]] = {}

    def __call__(self, lane: int, partition: int) -> Recent:
        """Return those of a lane's application."""
        lent = self._lent.get((lane, partition))
        if lent is None:
            recent = self._quotas.by_name[self._lanes[lane].deployed.application.name].recent
            its = recent.of(partition)
            lent = compiled.Recent(its.ids, its.generation, its.size, recent.capacity), its
            self._lent[lane, partition] = lent
        return lent[0]

    def give_back(self) -> None:
        """Take over what has been added."""
        for recent, its in self._lent.values():
            its.generation, its.size = recent.generation, recent.size


def _emit(answered: Answered, effects: Effects) -> None:
    """Have answers written; copies need none."""
    for partition, data, count, spans in answered.batches:
        completes = tuple([Span(topics.QUERIES, partition, *span) for span in spans])
        effects.append(EmitBatch(topics.PREDICTIONS, partition, data, count, completes))
    if answered.copies:
        copies = [Position(topics.QUERIES, *place) for place in answered.copies]
        effects.append(Skip(tuple(copies), "duplicate_query"))


def _complete(prediction: Prediction) -> Prediction:
    """Return an answer that is complete.

    Raises:
        Uncut: it is not.
    """
    if prediction.status is not Status.COMPLETE:
        raise Uncut
    return prediction


def _coded(results: Sequence[Predicted]) -> _AnswerCodes | None:
    """Return what models have answered to the same rows; None: no labels, or too many are different."""
    rows = len(results[0].outcomes)
    if any(not isinstance(each.answers, tuple) and each.answers.dtype.kind == "f" for each in results):
        return None
    answers = [each.answers if isinstance(each.answers, tuple) else each.answers.tolist() for each in results]
    places: dict[tuple[int | float | str, ...], int] = {}
    codes = [places.setdefault(given, len(places)) for given in zip(*answers, strict=True)]
    if len(places) > MOST_CODES + rows // 2:
        return None
    return _AnswerCodes(np.array(codes, "<i8").tobytes(), [*places])
