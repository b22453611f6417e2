"""How long each application waits for feedback, and what feedback and its absence cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from policies.errors import LossError, UnknownLabelError
from policies.loss_rules import rule
from policies.losses import class_text
from schemas import topics
from schemas.records import TeachingBound
from streams.operators.ids import SECOND_US

if TYPE_CHECKING:
    from schemas.records import Observation
    from streams.operators.configuration import Configuration, Deployed
    from streams.operators.contract import Record

MOST_TEACHER: Final = 128  # characters of a name: it stands in each of his observations


class JoinTerms(NamedTuple):
    """The terms on which an application's predictions wait.

    Attributes:
        window_us: how long feedback is waited for.
        loss: the rule by which feedback is judged, as `policies.loss_rules` reads it.
        default_loss: the loss of a window that ends without feedback; None = no observation.
        span: the error that costs 1, of losses that have one; None = it is learnt.
        forget_us: after how long without a lesson a context starts anew; 0 = never.
        max_weight: the largest weight of feedback.
        most: lessons of one teacher in a minute; 0 = any number.
        most_context: lessons of one context in a minute that teach what all share; 0 = any number.
        teachers: who are counted each; none = whoever names himself.
        examination: of rankings, the probability that each place is looked at; none = only the first one teaches.
    """

    window_us: int
    loss: str
    default_loss: float | None
    span: float | None = None
    forget_us: int = 0
    max_weight: float = 1.0
    most: int = 0
    most_context: int = 0
    teachers: frozenset[str] = frozenset()
    examination: tuple[float, ...] = ()

    def part_of(self, weight: float | None) -> float | None:
        """Return which part of a full lesson feedback of a weight is; None = all of it.

        Raises:
            LossError: it is no weight of this application.
        """
        if weight is None:
            return None if self.max_weight == 1.0 else 1.0 / self.max_weight
        if not 0.0 < weight <= self.max_weight:
            raise LossError(
                f"weight {weight:g} is not above 0 and at most {self.max_weight:g}, the application's max_weight"
            )
        return weight / self.max_weight

    @property
    def is_bounded(self) -> bool:
        """Whether its observations say how far they teach."""
        return bool(self.most or self.most_context)

    def taught_by(self, seen: Observation, teacher: str | None) -> Observation:
        """Return an observation as it may teach: with its bound, and when its context is forgotten.

        Args:
            seen: as it was joined.
            teacher: who told it; None = nobody did, so no teacher's lessons are counted.
        """
        seen = seen._replace(forget_us=self.forget_us) if self.forget_us else seen
        if not self.is_bounded:
            return seen
        if teacher is None:
            return seen._replace(bound=TeachingBound("", 0, self.most_context)) if self.most_context else seen
        name = teacher[:MOST_TEACHER] if not self.teachers or teacher in self.teachers else ""
        return seen._replace(bound=TeachingBound(name, self.most, self.most_context))


class ApplicationTerms:
    """The terms of every application, of those that were removed until their last window has ended.

    Args:
        configuration: follows the topics of applications and models.
        longest_us: no window is longer; also that of applications that are unknown.
        early_us: how much longer than its window a prediction may wait that was read late.
        memory_us: applications removed longer ago are forgotten, whatever their windows.
    """

    __slots__ = (
        "_configuration",
        "_early_us",
        "_labels",
        "_longest_us",
        "_memory_us",
        "_removed",
        "_terms",
        "_unknown",
    )

    def __init__(self, configuration: Configuration, longest_us: int, early_us: int, memory_us: int) -> None:
        self._configuration = configuration
        self._longest_us = longest_us
        self._early_us = early_us
        self._memory_us = memory_us
        self._removed: dict[str, tuple[Deployed, int]] = {}  # applications, and until when their last windows run
        self._terms: dict[str, JoinTerms] = {}
        self._labels: dict[str, frozenset[str]] = {}  # of applications, as far as they were asked for
        self._unknown = JoinTerms(longest_us, "zero_one", None)

    def of(self, application: str) -> JoinTerms:
        """Return the terms of an application."""
        return self._terms.get(application, self._unknown)

    def labels_of(self, application: str) -> frozenset[str]:
        """Return the classes of an application whose labels are classes of its models, as text.

        There are none where a model does not say which it has, or the loss does not compare labels with classes.
        """
        found = self._labels.get(application)
        if found is None:
            found = self._labels[application] = self._classes_of(application)
        return found

    def check_label(self, seen: Observation) -> None:
        """Refuse the label of an observation that is no class of any model.

        Where a model was right, or a loss was told, there is nothing to check.

        Raises:
            UnknownLabelError: it is none.
        """
        label = seen.label
        if label is None or seen.loss == 0.0 or seen.first or 0.0 in seen.losses:
            return
        classes = self.labels_of(seen.application)
        if classes and isinstance(label, int | float | str) and class_text(label) not in classes:
            raise UnknownLabelError(
                f"the label is none of the {len(classes)} classes of the models of {seen.application}: send one of"
                " them, as they were packaged"
            )

    def _classes_of(self, application: str) -> frozenset[str]:
        deployed = self._configuration.applications.get(application)
        if deployed is None or rule(deployed.application.loss).kind not in ("zero_one", "log"):
            return frozenset()
        return self._configuration.classes_of(deployed.application.models)

    def on_record(self, record: Record, now_us: int) -> None:
        """Take configuration; the terms of a removed application hold until its last window has ended.

        Raises:
            DecodeError: as `Configuration.on_record`.
        """
        applications = self._configuration.applications
        name = (record.key or b"").decode(errors="replace")
        before = applications.get(name) if record.topic == topics.APPLICATIONS else None
        self._labels.clear()
        self._configuration.on_record(record)
        if before is not None and record.value is None:
            last_us = int(before.application.window_s * SECOND_US) + self._early_us
            self._removed[name] = before, now_us + min(last_us, self._memory_us)
        if record.topic == topics.APPLICATIONS:
            self._note()

    def forget(self, now_us: int) -> None:
        """Forget the removed applications of which no window is left."""
        if self._removed:
            self._removed = {name: kept for name, kept in self._removed.items() if kept[1] > now_us}
            self._note()

    def _note(self) -> None:
        """Work out the terms of known applications; one that runs replaces a removed one of its name."""
        removed = {name: deployed for name, (deployed, _) in self._removed.items()}
        known = removed | self._configuration.applications
        self._terms = {name: self._of(deployed) for name, deployed in known.items()}

    def _of(self, deployed: Deployed) -> JoinTerms:
        application = deployed.application
        window_us = min(int(application.window_s * SECOND_US), self._longest_us)
        span = rule(application.loss).span if application.span is None else application.span
        known = application.loss, application.default_loss, span
        bound = application.lessons_per_teacher, application.lessons_per_context, frozenset(application.teachers)
        return JoinTerms(window_us, *known, deployed.forget_us, application.max_weight, *bound, application.examination)
