"""What dashboards show and alert rules watch, declared once; what a figure means stands where it is exported.

A panel names figures as roles report them, and how they are read: `rate` (a counter's rise in a second), `share` (one
counter's rise by another's), `value` (a gauge) or `quantiles` (a histogram: its median and 99th percentile over all
processes). `by` are the labels that tell lines apart. A rule is an expression of PromQL, how long it must hold, and the
command to type when it does.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Severity = Literal["page", "ticket"]


class Panel(NamedTuple):
    """One chart.

    Attributes:
        title: what a reader asks.
        figures: as reported, without the namespace; of a `share` the part and the whole.
        read: how.
        by: labels of the lines.
        where: matchers of the first figure, such as `status="default"`.
        unit: as Grafana names it.
    """

    title: str
    figures: tuple[str, ...]
    read: Literal["rate", "share", "value", "quantiles"]
    by: tuple[str, ...] = ()
    where: str = ""
    unit: str = "short"


class AlertRule(NamedTuple):
    """One alert.

    Attributes:
        name: of the alert.
        expr: of PromQL; it holds for those who are in trouble.
        hold: how long it must hold, such as `2m`.
        severity: `page` wakes somebody, `ticket` waits for the morning.
        says: what is wrong, with `{{ $labels.x }}` and `{{ $value }}`.
        command: to type next.
        figures: that it watches.
    """

    name: str
    expr: str
    hold: str
    severity: Severity
    says: str
    command: str
    figures: tuple[str, ...]


ANSWERS: Final = "skysail_answers_total"

DASHBOARD: Final[dict[str, tuple[Panel, ...]]] = {
    "Is it well?": (
        Panel("Queries a second", ("queries_total",), "rate", ("application",), unit="reqps"),
        Panel("Answered by default", ("answers_total", "answers_total"), "share", ("application",),
              'status="default"', "percentunit"),
        Panel("Answered after the deadline", ("late_answers_total", "answers_total"), "share", ("application",),
              unit="percentunit"),
        Panel("Why not complete", ("answers_total",), "rate", ("application", "reason"), 'status!="complete"', "reqps"),
        Panel("Time to answer, p50 and p99", ("answer_seconds",), "quantiles", ("application",), unit="s"),
        Panel("Objective", ("answer_objective_seconds",), "value", ("application",), unit="s"),
        Panel("Answered within the objective", ("answer_within_objective_total", "answer_seconds_count"), "share",
              ("application",), unit="percentunit"),
        Panel("Dead letters", ("dead_letters_total",), "rate", ("topic", "cause"), unit="reqps"),
    ),
    "Models": (
        Panel("Asked a second", ("asked_total",), "rate", ("application", "model"), unit="reqps"),
        Panel("Weight in the policy", ("policy_weight",), "value", ("application", "model"), unit="percentunit"),
        Panel("Mean loss", ("model_loss_total", "model_losses_total"), "share", ("application", "model")),
        Panel("Rows by outcome", ("rows_total",), "rate", ("model", "outcome"), unit="reqps"),
        Panel("Rows a batch", ("batch_rows_total", "batches_total"), "share", ("model",)),
        Panel("Most rows of a batch", ("batch_cap",), "value", ("model",)),
        Panel("Rows that wait", ("queue_rows",), "value", ("model",)),
        Panel("Wait that is estimated", ("estimated_wait_seconds",), "value", ("model",), unit="s"),
        Panel("Time at the worker, p50 and p99", ("model_seconds",), "quantiles", ("model",), unit="s"),
        Panel("Time in the model's code", ("predict_us_total",), "rate", ("model",), unit="µs"),
        Panel("Outputs that came too late", ("late_outputs_total",), "rate", ("model",), unit="reqps"),
    ),
    "Learning": (
        Panel("Mean loss of what was answered", ("loss_total", "losses_total"), "share", ("application",)),
        Panel("Predictions joined with feedback", ("joined_total",), "rate", ("application",), unit="reqps"),
        Panel("Observations learnt", ("applied_total",), "rate", ("application",), unit="reqps"),
        Panel("Windows that ended without feedback", ("unjoined_total",), "rate", ("application",), unit="reqps"),
        Panel("Feedback refused", ("refused_feedback_total",), "rate", ("cause",), unit="reqps"),
        Panel("Sets that held the true label", ("label_sets_judged_total",), "rate", ("application", "outcome")),
        Panel("Intervals that held the number", ("intervals_judged_total",), "rate", ("application", "outcome")),
    ),
    "Roles": (
        Panel("Records unread", ("lag",), "value", ("instance_name",)),
        Panel("Processor time", ("cpu_seconds_total",), "rate", ("instance_name",), unit="percentunit"),
        Panel("Memory", ("resident_bytes",), "value", ("instance_name",), unit="bytes"),
        Panel("Buffers to Kafka", ("pressure",), "value", ("instance_name",), unit="percentunit"),
        Panel("Decided without their state", ("decided_without_state_total",), "rate", ("application",),
              unit="reqps"),
        Panel("Redis did not answer", ("store_failures_total",), "rate", ("instance_name",), unit="reqps"),
    ),
    "Doors": (
        Panel("Requests over HTTP", ("gateway_requests_total",), "rate", ("door", "status"), unit="reqps"),
        Panel("Time to reply, p50 and p99", ("gateway_seconds",), "quantiles", ("door",), unit="s"),
        Panel("Records of others mapped", ("mapped_total", "answered_total"), "rate", ("application",), unit="reqps"),
        Panel("Records that could not be mapped", ("unmapped_total",), "rate", ("topic",), unit="reqps"),
    ),
}  # fmt: skip

# Of an application's answers so many may take longer than its objective, over a month.
BUDGET: Final = 0.01


def _burns(times: float, *windows: str) -> str:
    """Return the expression of a budget that is spent so many times too fast, over each of some windows."""
    by = "sum by (application) (rate(skysail_answer_%s[%s]))"
    spent = (
        f"(1 - {by % ('within_objective_total', window)} / ({by % ('seconds_count', window)} > 0) > {times * BUDGET:g})"
        for window in windows
    )
    return " and ".join(spent)


RULES: Final = (
    AlertRule(
        "SkysailRoleGone",
        'up{job="skysail"} == 0',
        "1m",
        "page",
        "{{ $labels.instance }} cannot be scraped: a process of Skysail is gone, or does not answer",
        "skysail doctor",
        (),
    ),
    AlertRule(
        "SkysailNoSelection",
        'absent(skysail_uptime_s{role="selection"})',
        "1m",
        "page",
        "no selection role reports: queries are not answered",
        "skysail run --role selection",
        ("uptime_s",),
    ),
    AlertRule(
        "SkysailDefaults",
        f'sum by (application) (rate({ANSWERS}{{status="default"}}[2m]))'
        f" / (sum by (application) (rate({ANSWERS}[2m])) > 0) > 0.05",
        "2m",
        "page",
        "{{ $labels.application }}: {{ $value | humanizePercentage }} of the answers are defaults",
        "skysail app show {{ $labels.application }}",
        ("answers_total",),
    ),
    AlertRule(
        "SkysailLate",
        "sum by (application) (rate(skysail_late_answers_total[2m]))"
        f" / (sum by (application) (rate({ANSWERS}[2m])) > 0) > 0.01",
        "2m",
        "page",
        "{{ $labels.application }}: {{ $value | humanizePercentage }} of the answers left after their deadline",
        "skysail doctor",
        ("late_answers_total", "answers_total"),
    ),
    AlertRule(
        "SkysailBurnsFast",
        _burns(14.4, "1h", "5m"),
        "2m",
        "page",
        "{{ $labels.application }}: {{ $value | humanizePercentage }} of the answers take longer than the objective;"
        " at that rate two days spend what is allowed in a month",
        "skysail app show {{ $labels.application }}",
        ("answer_within_objective_total", "answer_seconds_count"),
    ),
    AlertRule(
        "SkysailBurns",
        _burns(6, "6h", "30m"),
        "15m",
        "ticket",
        "{{ $labels.application }}: {{ $value | humanizePercentage }} of the answers take longer than the objective;"
        " at that rate five days spend what is allowed in a month",
        "skysail app show {{ $labels.application }}",
        ("answer_within_objective_total", "answer_seconds_count"),
    ),
    AlertRule(
        "SkysailFallsBehind",
        "skysail_lag > 500 and skysail_lag > 2 * (skysail_lag offset 2m)",
        "1m",
        "page",
        "{{ $labels.instance_name }} falls behind: {{ $value }} records are unread, and it grows",
        "skysail run --role {{ $labels.role }}",
        ("lag",),
    ),
    AlertRule(
        "SkysailModelNotLoaded",
        "max by (model) (skysail_model_not_loaded) == 1",
        "1m",
        "page",
        "no version of {{ $labels.model }} can be loaded: its rows fail",
        "skysail model show {{ $labels.model }}",
        ("model_not_loaded",),
    ),
    AlertRule(
        "SkysailVersionFailing",
        "max by (model, version) (skysail_version_failing) == 1",
        "2m",
        "ticket",
        "{{ $labels.model }} {{ $labels.version }} is wanted and cannot be loaded",
        "skysail model rollback {{ $labels.model }}",
        ("version_failing",),
    ),
    AlertRule(
        "SkysailModelFails",
        'sum by (model) (rate(skysail_rows_total{outcome="failed"}[5m]))'
        " / (sum by (model) (rate(skysail_rows_total[5m])) > 0) > 0.05",
        "5m",
        "ticket",
        "{{ $labels.model }} fails on {{ $value | humanizePercentage }} of its rows",
        "skysail model show {{ $labels.model }}",
        ("rows_total",),
    ),
    AlertRule(
        "SkysailDrift",
        "max by (application, model) (skysail_drift_evidence) >= 1",
        "1m",
        "ticket",
        "{{ $labels.application }} is asked or answers otherwise than before; the live page says which columns moved",
        "skysail app show {{ $labels.application }}",
        ("drift_evidence",),
    ),
    AlertRule(
        "SkysailRedisAway",
        "sum(rate(skysail_store_failures_total[2m])) > 0",
        "1m",
        "page",
        "Redis does not answer: queries are decided without what was learnt, and nothing is learnt",
        "skysail doctor",
        ("store_failures_total",),
    ),
    AlertRule(
        "SkysailLearningBlocked",
        "max by (instance_name) (skysail_store_blocked_partitions) > 0",
        "2m",
        "page",
        "{{ $labels.instance_name }} learns nothing in {{ $value }} partitions: a policy state cannot be read",
        "skysail doctor",
        ("store_blocked_partitions",),
    ),
    AlertRule(
        "SkysailStatesSetAside",
        "sum by (instance_name) (increase(skysail_states_set_aside_total[10m])) > 0",
        "0m",
        "page",
        "{{ $labels.instance_name }} had learnt from records that Kafka has lost: {{ $value | humanize }} partitions"
        " are folded anew",
        "skysail topics check",
        ("states_set_aside_total",),
    ),
    AlertRule(
        "SkysailLessonsBounded",
        "sum by (application, by) (rate(skysail_bounded_lessons_total[5m])) > 0",
        "5m",
        "ticket",
        "{{ $labels.application }}: {{ $value | humanize }} lessons a second too many of one {{ $labels.by }}",
        "skysail app show {{ $labels.application }}",
        ("bounded_lessons_total",),
    ),
    AlertRule(
        "SkysailDeadLetters",
        "sum by (topic, cause) (increase(skysail_dead_letters_total[5m])) > 0",
        "0m",
        "ticket",
        "{{ $value | humanize }} dead letters of {{ $labels.topic }} in five minutes, cause {{ $labels.cause }}",
        "skysail dlq list --since 10m",
        ("dead_letters_total",),
    ),
    AlertRule(
        "SkysailProgramFault",
        "sum by (instance_name) (increase(skysail_kernel_failures_total[5m])) > 0",
        "0m",
        "page",
        "{{ $labels.instance_name }} has met {{ $value | humanize }} errors of the program itself",
        "skysail dlq list --cause bug",
        ("kernel_failures_total",),
    ),
    AlertRule(
        "SkysailClockOff",
        "abs(skysail_clock_off_ms) > 500",
        "1m",
        "ticket",
        "the clock of {{ $labels.instance_name }} is {{ $value }} ms off",
        "skysail doctor",
        ("clock_off_ms",),
    ),
    AlertRule(
        "SkysailOverload",
        'sum by (door) (rate(skysail_gateway_requests_total{status="503"}[2m]))'
        " / (sum by (door) (rate(skysail_gateway_requests_total[2m])) > 0) > 0.01",
        "2m",
        "page",
        "the gateway turns {{ $value | humanizePercentage }} of the {{ $labels.door }} requests away",
        "skysail doctor",
        ("gateway_requests_total",),
    ),
    AlertRule(
        "SkysailTraceNotWritten",
        "sum(rate(skysail_trace_write_failures_total[5m])) > 0 or sum(increase(skysail_trace_missed[5m])) > 0",
        "1m",
        "ticket",
        "the trace lacks records: the disk refuses it, or Kafka has deleted some before they were recorded",
        "skysail doctor",
        ("trace_write_failures_total", "trace_missed"),
    ),
)
