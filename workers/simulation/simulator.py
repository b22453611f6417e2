"""Simulates a plan: one queue of events, seeded draws, no clock. What only the roles know is for `kernels`.

Each query is a number; what is known of it stands in columns. So a minute of 1,000 workers and 100,000 queries a second
fits into memory, and figures are made of whole columns at the end (`run`).
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import numpy as np

from streams.testing.events import Events
from workers.simulation.run import NEVER, Run, column
from workers.simulation.selection import SimulatedAnswers, SimulatedArms, SimulatedOutputs, SimulatedSelection
from workers.simulation.worker import Journal, SimulatedTimes, SimulatedWorker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from workers.simulation.plan import SimulatedModel, SimulationPlan


def simulate(plan: SimulationPlan, random: np.random.Generator) -> Run:
    """Return what becomes of a plan's queries; the same plan and seed give the same to the last bit.

    Args:
        plan: what is simulated.
        random: its seed decides; it is only divided, so that one draw more of one model changes no other.

    Raises:
        PlanError: the plan asks for what is not simulated.
        PolicyError: there is no such policy, controller or parameter.
    """
    if plan.roles is not None:
        from workers.simulation.kernels import simulate_kernels  # and with it all roles, which few plans need

        return simulate_kernels(plan, random)
    return _Simulation(plan, random).run()


class _Simulation:
    """One run: the processes, and what ties them together."""

    def __init__(self, plan: SimulationPlan, random: np.random.Generator) -> None:
        self._plan = plan
        of_legs, of_policy, of_selection, *of_models = random.spawn(3 + len(plan.models))
        span_us = plan.legs.span_us
        self._legs = plan.legs.shifted(int(of_legs.integers(span_us)) if span_us else 0)
        self._events = Events()
        count = len(plan.arrivals_us)
        self._received_us = self._legs.ask.arrivals_us(plan.arrivals_us)
        self._arms = _drawn(plan, count, of_policy)
        self._answers = [SimulatedAnswers(array("q", [NEVER]) * count, bytearray(count)) for _ in plan.models]
        self._journals = [Journal(count) for _ in plan.models]
        self._homes = _homes(count, plan.selections, of_selection)
        self._workers = [self._staff(index, its) for index, its in enumerate(of_models)]
        self._owners = [model.owners() for model in plan.models]
        self._selections = self._select(of_selection)

    def run(self) -> Run:
        """Let everything happen."""
        ended_us = self._events.run()
        return Run.of(
            plan=self._plan,
            ended_us=ended_us,
            received_us=self._received_us,
            answer=self._legs.answer,
            drawn=None if self._arms.drawn is None else np.frombuffer(self._arms.drawn, np.uint8),
            outputs_us=tuple(column(answers.at_us) for answers in self._answers),
            expired=tuple(np.frombuffer(answers.is_expired, np.uint8).astype(bool) for answers in self._answers),
            journals=tuple(self._journals),
        )

    def _select(self, random: np.random.Generator) -> list[SimulatedSelection]:
        until = array("q", (self._plan.arrivals_us + self._plan.application.limit_us).tobytes())
        received = array("q", self._received_us.tobytes())
        slack_us = self._plan.application.slo_us
        turns = random.integers(max(map(len, self._owners)), size=self._plan.selections).tolist()
        return [
            SimulatedSelection(
                queries,
                received,
                until,
                slack_us,
                self._arms,
                self._answers,
                self._ask,
                self._events,
                self._plan.poll_us,
                turn,
            )
            for queries, turn in zip(
                _received_by(self._received_us, self._homes, self._plan.selections), turns, strict=True
            )
        ]

    def _staff(self, index: int, random: np.random.Generator) -> list[SimulatedWorker]:
        """Make the workers of a model, each with draws of its own."""
        model, legs = self._plan.models[index], self._legs

        def reply(sent_us: int, predicted: Sequence[int], expired: Sequence[int]) -> None:
            self._reply(index, sent_us, predicted, expired)

        def worker(its: np.random.Generator) -> SimulatedWorker:
            times = SimulatedTimes(model.service.sampler(its), legs.call_us, legs.turnaround_us)
            models = model.replicas if model.shared else 1
            return SimulatedWorker(
                model.batcher(), model.queue_rows, times, self._events, self._journals[index], reply, models
            )

        return [worker(its) for its in random.spawn(_queues(model))]

    def _ask(self, now_us: int, model: int, turn: int, rows: list[tuple[int, int]]) -> None:
        owners = self._owners[model]
        worker = self._workers[model][owners[turn % len(owners)]]
        self._events.add(now_us + self._legs.dispatch.delay_us(now_us), worker.arrive, rows)

    def _reply(self, model: int, sent_us: int, predicted: Sequence[int], expired: Sequence[int]) -> None:
        at_us = sent_us + self._legs.reply.delay_us(sent_us)
        homes = self._homes
        if homes is None:
            self._events.add(
                at_us, self._selections[0].on_outputs, SimulatedOutputs(model, sent_us, predicted, expired)
            )
            return
        parts: dict[int, tuple[list[int], list[int]]] = {}
        for which, queries in enumerate((predicted, expired)):
            for query in queries:
                parts.setdefault(homes[query], ([], []))[which].append(query)
        for home, part in parts.items():
            self._events.add(at_us, self._selections[home].on_outputs, SimulatedOutputs(model, sent_us, *part))


def _queues(model: SimulatedModel) -> int:
    return 1 if model.shared else model.replicas


def _drawn(plan: SimulationPlan, count: int, random: np.random.Generator) -> SimulatedArms:
    """Draw the models that queries ask, by the policy's state before any feedback."""
    models = len(plan.models)
    policy = plan.policy()
    if policy.full_information:
        return SimulatedArms(models, None)
    propensities = np.array(policy.propensities(policy.init(models), models))
    steps = np.cumsum(propensities)
    drawn = np.searchsorted(steps, random.random(count), side="right")
    last = int(np.flatnonzero(propensities)[-1])  # where the sum rounds to less than 1
    return SimulatedArms(models, np.minimum(drawn, last).astype(np.uint8).tobytes())


def _homes(count: int, selections: int, random: np.random.Generator) -> bytes | None:
    """Say which selection process has each query, by its key's hash; None = there is one alone."""
    return None if selections == 1 else random.integers(selections, size=count, dtype=np.uint8).tobytes()


def _received_by(received_us: NDArray[np.int64], homes: bytes | None, selections: int) -> list[Sequence[int]]:
    """Return each process's queries, in the order in which they come."""
    order = np.argsort(received_us, kind="stable")
    if homes is None:
        return [array("q", order.tobytes())]
    its = np.frombuffer(homes, np.uint8)[order]
    return [array("q", order[its == home].tobytes()) for home in range(selections)]
