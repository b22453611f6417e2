"""Shows the latest reports to Prometheus, with a line of help for each metric; tells whether roles live and can work.

Nothing happens between scrapes.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, Metric, generate_latest, make_wsgi_app

from streams.operators.statistics import OBJECTIVE, WITHIN
from streams.runtime.metrics import HISTOGRAM, TOTAL, is_counter
from streams.runtime.process.host_names import is_ours, names
from streams.runtime.process.readiness import hindrances, stuck
from streams.runtime.process.remedies import REMEDIES

if TYPE_CHECKING:
    from collections.abc import Iterable
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from schemas.records import Report

# How figures of durations end, and what each is of the duration.
_ENDS: Final = {
    "_p50_us": "median of the {}, of the last minute, in microseconds",
    "_p99_us": "99th percentile of the {}, of the last minute, in microseconds",
    WITHIN: "how often the {} was within the objective",
    OBJECTIVE: "objective of the {}, in seconds",
    "_seconds": "{}, in seconds, by shares of the objective",
}
MEANINGS: Final = {
    "answer": "time from a query's sending to its answer's leaving selection",
    "answered_total": "predictions written to topics of others, by application",
    "answers_total": "queries answered, by status and, of defaults and partial answers, the reason",
    "apprentice_difference": "bound of the mean loss of an application's policy less that of its apprentice",
    "applied_total": "observations folded into policy states",
    "asked_total": "questions of an application to a model",
    "batch_cap": "rows that the model's next batch may have at most",
    "answers_by_columns_total": "answers that were made in C, many at a time",
    "batch_rows_total": "rows of all batches",
    "batches_given_up_total": "batches that failed because nobody told in time what became of them.",
    "batches_total": "batches predicted, by what closed them",
    "cache_bytes": "memory that cached model answers take",
    "cache_entries": "model answers in the cache",
    "candidate_hindered": "1 for a candidate that cannot be compared; the label says why",
    "cache_total": "questions to a model by what the cache had: the answer, one under way, nothing",
    "canary": "share of the model's queries that this version answers beside the one that serves",
    "candidate": "1 for each model that an application may ask",
    "clock_off_ms": "milliseconds by which the role's clock is ahead of its machine's",
    "coded_total": "rows of a model that a parity model was asked the sum of",
    "coding_bytes": "memory that groups of coded rows take",
    "coding_groups": "groups of coded rows that wait for rows or outputs",
    "coding_unfilled_total": "rows of groups that did not fill in time",
    "columns_total": "records that the joiner or observations that the learner took in C, many at a time",
    "completions_ignored_total": "records whose outcome came after their partition had gone to another process",
    "cost_total": "sum of what served answers cost, in the unit of the application's `loss`",
    "coverage_promised": "share of the sets of labels that are to hold the true one, as the application promises",
    "cpu_seconds_total": "processor time that this process has used, user and system",
    "dead_letters_total": "records that could not be used and are kept with their cause",
    "decided_without_state_total": "queries decided before their policy's state had been read",
    "deployed": "1 for each application, with its policy",
    "bounded_lessons_total": "lessons beyond what one teacher or context may give in a minute, by whose bound it was",
    "duplicate_observations_total": "observations that were learnt before and are skipped",
    "estimated_wait_seconds": "seconds that a row which came to the model's worker now would wait for its batch",
    "drift_applications_left_out": "applications that the watch over drift has no room for; 64 = or more",
    "drift_columns_left_out": "columns of an application that the watch over drift has no room for; 64 = or more",
    "drift_evidence": "how surely inputs or outputs are no longer as they were, as a share of what is told",
    "drift_moved": "share of a column's values that are in other bins than before, of columns that are told",
    "failed_outputs_total": "an application's questions that a model refused for their input, or failed on",
    "feature_failures_total": "attempts to read features that their store did not answer",
    "feature_reads_total": "reads of features",
    "features_bytes": "memory that features take which are looked up",
    "features_cached": "keys whose features are held in memory",
    "features_forgotten_total": "keys whose features were not asked for, since too many waited for the store",
    "features_total": "features of queries by source: known, or imputed by their mean",
    "features_waiting": "queries that wait for features",
    "keyed_answers": "last answers that are remembered for feedback by key",
    "keyed_bytes": "what these take",
    "keyed_waiting": "feedback by key that waits until the predictions of its time have been read",
    "keyed_forgotten_total": "last answers that were forgotten before their windows ended, as there was no room",
    "keyed_total": "feedback by key, by whether an answer was found, or so many that it is refused (`long_episode`)",
    "measured_total": "values of metrics that were measured or told, by application and metric",
    "metrics_forgotten_total": "answers that were forgotten before their windows ended, as too many wait for metrics",
    "metrics_waiting": "answers whose metrics may still be told",
    "feedback_waiting": "feedback that has come before its prediction",
    "full_loss_share": "share of the latest losses of numbers that were 1: near 1, models cannot be compared",
    "gateway": "time from a request's head to its reply, by door",
    "gateway_connections": "connections that the gateway has",
    "gateway_defaults_total": "rows of requests that were answered by default",
    "gateway_memory_bytes": "memory that replies take which are kept for repeated requests",
    "gateway_repeated_total": "requests that got the reply of an earlier one with their id",
    "gateway_requests_total": "requests answered by the gateway, by door and status of HTTP",
    "gateway_rows_total": "rows of requests",
    "gateway_rows_waiting": "rows of requests that wait for their answers",
    "hedge_tokens": "questions that an application may put twice at once, where a model takes longer than usual",
    "hedges_total": "questions that took longer than usual: asked again, won by that, late, overloaded or unpaid",
    "held": "queries of an application that wait for their answer",
    "held_limit": "queries of an application that may wait for their answer now",
    "host_asked_total": "rows that a host has read for a model, since the model was first asked within a minute",
    "host_batch_p99_us": "longest of the last ten batches of a model of a host and of so many rows (us)",
    "host_budget_bytes": "memory that the models of a host may take",
    "host_evictions_total": "models that a host has unloaded to make room",
    "host_joint_batches_total": "batches of a host that had rows of several models with one trunk",
    "host_joint_parts_total": "models that had rows in such batches, summed",
    "host_known_models": "models of a host, in memory or not",
    "host_last_eviction_idle_s": "seconds for which the model that a host unloaded last had not been used",
    "host_load_p99_us": "longest of the last ten times that loading a model of a host took (us)",
    "host_loads_total": "models that a host has begun to load",
    "host_model_predicted_actual_us_total": "time that batches of a model took whose time was predicted (us)",
    "host_model_predicted_batches_total": "batches of a model of a host whose time was predicted by earlier ones",
    "host_model_predicted_too_long_total": "batches of a model of a host that took less time than predicted",
    "host_model_predicted_too_short_total": "batches of a model of a host that took more time than predicted",
    "host_model_predicted_us_total": "time that these batches were predicted to take (us)",
    "host_predicted_batches_total": "batches of a host whose time was predicted by earlier ones",
    "host_predicted_too_long_p99_us": "p99 of how much shorter than predicted batches were, of those that were (us)",
    "host_predicted_too_long_total": "batches of a host that took less time than predicted",
    "host_predicted_too_short_p99_us": "p99 of how much longer than predicted batches were, of those that were (us)",
    "host_predicted_too_short_total": "batches of a host that took more time than predicted",
    "host_process_ends_total": "times that the process of a host's models ended, or was ended because one hung",
    "host_process_starts_total": "processes that a host has started for its models",
    "host_refused_total": "rows that a host's schedule refused because they could not be in time",
    "host_resident_bytes": "memory that the models of a host take which are in it, or being loaded",
    "host_resident_models": "models of a host that are in memory",
    "host_slow_loads_total": "loads that took so long that a host has loaded other models beside",
    "ids_bytes": "memory that ids of observations take, by which copies are recognised",
    "ids_bytes_limit": "memory that ids of observations may take",
    "ids_forgotten_total": "ids of observations forgotten before their time: a copy of one counts twice as evidence",
    "invalid_total": "rows whose input the model does not take, by what is wrong with it",
    "joined_total": "predictions joined with their feedback",
    "kernel_failures_total": "errors of the program itself",
    "interval_widths_total": "widths of intervals with two ends, summed, in the unit of the answers",
    "intervals_judged_total": "intervals whose true number was told later: held it, or missed it",
    "intervals_total": "intervals answered: with two ends, or any number since too little is known",
    "label_set_sizes_total": "labels in the sets of some labels, summed",
    "label_sets_judged_total": "sets of labels whose true label was told later: held it, or missed it",
    "label_sets_total": "sets of labels answered: some labels, or all since too little is known",
    "labelled": "1 for each label that a version of the model was given",
    "last_exit": "how the process of this name before this one ended: its exit status, or minus the signal",
    "lag": "records in Kafka that this process has yet to read",
    "looked_up": "1 for each source that an application's features are looked up in",
    "lane_batches_total": "record batches sent to Kafka",
    "lane_records_total": "records sent to Kafka",
    "lane_refused_total": "records that Kafka refused for good",
    "lane_retries_total": "record batches sent once more after Kafka did not take them",
    "lane_unpacked_total": "finished batches whose records were sent one by one",
    "large_bytes": "memory that large records take while they wait",
    "late_answers_total": "answers that left after their query's deadline",
    "late_outputs_total": "model answers that came after their query had been answered",
    "learnt_span": "error that costs a full loss, as an application's errors have been",
    "logs_set_back_total": "partitions that went on below what was read: made anew, or without their newest records",
    "loss_total": "sum of the losses of served answers, as feedback told them",
    "losses_total": "served answers whose loss is known; one of less than the largest weight counts in part",
    "mapped_total": "records of others' topics that became queries or feedback, by application",
    "measured_us": "microseconds that a batch of so many rows takes on a runtime that the worker may choose",
    "model": "time from when the worker fetched a row to its prediction",
    "model_cost_total": "sum of what a model's answers cost, in the unit of the application's `loss`",
    "model_loss_total": "sum of a model's losses where it was asked and feedback came",
    "model_losses_total": "a model's answers whose loss is known",
    "model_not_loaded": "1 while no version of the model can be loaded: its rows fail",
    "not_by_columns": "1 for each application whose queries are answered in Python; the label says why",
    "not_columns_total": "records that the joiner or observations that the learner left to Python, by why",
    "objective_us": "microseconds that a batch of the model may take",
    "observations_waiting": "observations that wait for their state to be read or written",
    "outstanding": "records in hand: read, and without an outcome yet",
    "over_limit_total": "what an application was turned away with, since it had its share of the room",
    "overloaded_total": "questions not asked since the model had too much to do to answer in time",
    "parked": "queries that wait for their policy's state to be read",
    "partitions": "partitions of the role's main topic that this process has",
    "pending": "queries that wait for their models' answers",
    "pid": "number of the process on its machine",
    "policy_weight": "share of a model in the application's global policy state",
    "predict_us_total": "microseconds spent in the model's own code",
    "predictions_waiting": "predictions that wait for their feedback",
    "pressure": "how full the buffers to Kafka are, 1 = full",
    "queries_total": "queries read",
    "queue_bytes": "memory that rows take which wait for the model",
    "queue_rows": "rows that wait for the model",
    "ready_s": "seconds that it took to get the version of the model ready that took over last",
    "recorded_total": "records taken into the trace, by topic",
    "reconstructed_total": "missing answers of a model that were decoded from others",
    "queries_left_total": "queries that columns left to Python, by why",
    "refused_feedback_total": "feedback that could not be joined, by cause",
    "refused_total": "rows refused since the model's queue was full",
    "refused_writes_total": "writes of policy states that Redis had newer ones for",
    "resident": "1 for each version of a model that is in memory in a host",
    "resident_bytes": "memory that this process holds",
    "return_us": "microseconds that a model's answer takes from the worker to selection",
    "rows_total": "rows that came to the model, by what became of them",
    "runtime": "rows from which on batches of the model go to this runtime",
    "serving": "1 for the version of the model that serves",
    "shadow": "1 for each version that sees every query and answers none",
    "shadows_forgotten_total": "shadows' answers dropped because there was no room",
    "revised_held": "feedback that is held, as it may be corrected",
    "revised_total": "feedback that could be corrected, by what became of the last record: told, or withdrawn",
    "schema_waiting": "records of other topics that wait until the registry has told their schemas",
    "schema_waiting_bytes": "what these take",
    "shadows_waiting": "queries whose shadows' answers wait for feedback",
    "standby": "1 for each version that is loaded and answers the queries that name it",
    "states_bytes": "memory that policy states take",
    "states_cached": "policy states held in memory",
    "states_set_aside_total": "partitions whose stored states were ahead of their log, and that are folded anew",
    "states_unread": "policy states that decide for applications and have not been read yet",
    "stages_total": "rows that stages of a graph asked, or did not, by outcome; left_out: too many items",
    "steps_total": "questions after a query's first one, by kind and outcome: asked, kept (not needed) or late",
    "stopped": "1 in the last report of a process that stops on request",
    "store_away": "1 while the store of policy states does not answer",
    "store_blocked_partitions": "partitions that learn nothing since a policy state of theirs cannot be read",
    "store_failures_total": "attempts to read or write policy states that Redis did not answer",
    "store_reads_forgotten_total": "reads of policy states given up since nobody waited for them any more",
    "store_reads_total": "reads of policy states",
    "store_refusals_total": "writes that Redis refused since another process had written",
    "store_unreadable_total": "policy states in Redis that could not be read",
    "store_waiting_bytes": "memory that policy states take which wait to be written",
    "store_waiting_reads": "policy states that wait to be read",
    "store_writes_total": "writes of policy states",
    "taken_out": "times in a row that a version was taken out of its host; there while it is, and the label says why",
    "telemetry_awaits_joins": "sampled queries whose observations are awaited",
    "telemetry_dropped_total": "legs that were dropped, and sampled queries; the label says why",
    "telemetry_held_bytes": "memory of the record batches in which legs are looked for",
    "telemetry_joined_total": "sampled queries whose observations were found",
    "telemetry_legs_total": "legs that OpenTelemetry's collector has taken",
    "telemetry_let_go_total": "record batches that went before their time since there was no room",
    "drawn_by_query_total": "queries without the context or episode by which their application draws",
    "telemetry_queries_total": "queries that were sampled",
    "telemetry_waiting": "legs that wait for the collector",
    "trace_bytes": "size of the trace on disk",
    "trace_dropped": "records deleted from the trace to keep its bound on disk",
    "traces_begun_anew_total": "new folders that the recorder began, as a topic had another log than before",
    "trace_missed": "records that Kafka had deleted before they were recorded",
    "trace_waiting_bytes": "memory that records take which wait to be written to the trace",
    "trace_write_failures_total": "attempts to write the trace that the disk refused",
    "uncoded_total": "rows of a coded model that could not join a group",
    "undecodable_total": "records whose bytes are no record of ours",
    "unjoined_total": "predictions whose window ended without feedback",
    "unmapped_total": "records of others' topics that could not be mapped, by topic",
    "uptime_s": "seconds since the first report of this process",
    "version_difference": "mean loss of the version that serves less that of one beside it, with bounds",
    "version_failing": "1 while this version is wanted and cannot answer",
    "version_fault": "attempts to load this version that failed, with the reason of the last one",
    "version_failures_total": "versions of the model that could not be started",
    "version_given_up": "1 while this version is wanted and is not loaded again, after all retries",
    "version_joined_total": "answers of a model's version whose loss is known, by weight",
    "version_loss_total": "sum of the losses of a model's version, each times its weight",
    "version_silent": "1 for a canary that has answered none of its queries in the last minute",
    "version_switches_total": "times that another version of the model began to serve",
    "waits_for": "1 while the role cannot work yet; the label says what it waits for",
    "windows_held": "partitions whose windows stay open since feedback of their time is still to be read",
}

CONNECTIONS = 16  # at once; Prometheus has one or two
ANSWER_S = 5.0  # for a whole request and its answer, however slowly the other side reads and writes
NAMESPACE = "skysail_"
Probe: TypeAlias = Callable[[], list[str]]
_NO_PROBES: Final[Mapping[str, Probe]] = MappingProxyType({})


def meaning(name: str) -> str:
    """Return what a figure is; of one that is not listed, its name in words."""
    known = MEANINGS.get(name)
    for end, words in () if known else _ENDS.items():
        if name.endswith(end) and (subject := MEANINGS.get(name.removesuffix(end))):
            known = words.format(subject)
            break
    return "; ".join(filter(None, (known or name.replace("_", " "), REMEDIES.get(name))))


class _Quiet(WSGIRequestHandler):
    """Logs nothing: a scrape is nothing to report."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the library's
        """Drop it."""


def guarded(application: WSGIApplication, known: frozenset[str]) -> WSGIApplication:
    """Return an application that is served under these names alone."""

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if is_ours(environ.get("HTTP_HOST"), known):
            return application(environ, start_response)
        start_response("421 Misdirected Request", [("Content-Type", "text/plain; charset=utf-8")])
        return [b"Metrics are not served under that name: use the address, or add the name to metrics.names.\n"]

    return answer


def routed(metrics: WSGIApplication, probes: Mapping[str, Probe]) -> WSGIApplication:
    """Return an application that shows metrics, and at the paths of probes what hinders: 503, or 200 for nothing."""

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        probe = probes.get(path)
        if probe is not None:
            said = probe()
            status = "503 Service Unavailable" if said else "200 OK"
            body = "".join(f"{line}\n" for line in said or ["ok"])
        elif path in {"/", "/metrics"}:
            return metrics(environ, start_response)
        else:
            status, body = "404 Not Found", f"Here are {', '.join(['/metrics', *probes])}.\n"
        start_response(status, [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store")])
        return [body.encode()]

    return answer


class ScrapeServer(WSGIServer):
    """Answers each connection in a thread of its own; those above the bound are closed unanswered.

    Args:
        address: host and port; port 0 takes a free one.
        registry: whose metrics it shows.
        connections: how many at once.
        answer_s: after which a connection is closed, whatever it waits for.
        known: the names that it is asked by, besides addresses.
        probes: by path; each returns what hinders.
    """

    def __init__(
        self,
        address: tuple[str, int],
        registry: CollectorRegistry,
        connections: int = CONNECTIONS,
        answer_s: float = ANSWER_S,
        known: frozenset[str] = frozenset(),
        probes: Mapping[str, Probe] = _NO_PROBES,
    ) -> None:
        self.address_family = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0][0]
        super().__init__(address, _Quiet)
        self._room = threading.BoundedSemaphore(connections)
        self._answer_s = answer_s
        self.set_app(guarded(routed(make_wsgi_app(registry), probes), known))

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        """Answer in a thread if there is room."""
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        threading.Thread(target=self._answer, args=(request, client_address), daemon=True).start()

    def _answer(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        place = _ConnectionSlot(self._room)
        end = threading.Timer(self._answer_s, _end, (request, place))
        end.daemon = True
        end.start()
        try:
            self.finish_request(request, client_address)
        except OSError:
            pass  # the other side is gone, or was too slow
        finally:
            end.cancel()
            place.give_back()
            self.shutdown_request(request)


class _ConnectionSlot:
    """One connection's place, given back once, before the other side can see the end and come again."""

    def __init__(self, room: threading.BoundedSemaphore) -> None:
        self._room = room
        self._lock = threading.Lock()
        self._is_held = True

    def give_back(self) -> None:
        """Let another connection have it."""
        with self._lock:
            if self._is_held:
                self._is_held = False
                self._room.release()


def _end(request: socket.socket, place: _ConnectionSlot) -> None:
    """End every wait for this connection."""
    place.give_back()
    with suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


class PrometheusExporter:
    """A metrics hook with an HTTP server, on 127.0.0.1 unless told otherwise; it answers from its own thread."""

    def __init__(self, port: int, address: str = "127.0.0.1", more_names: Iterable[str] = ()) -> None:
        self._latest: dict[str, tuple[Report, float]] = {}  # and when it came
        registry = CollectorRegistry()
        registry.register(self)
        probes: dict[str, Probe] = {
            "/health": lambda: stuck(self._aged()),
            "/ready": lambda: hindrances(self._aged()),
        }
        self._server = ScrapeServer((address, port), registry, known=names(address, more_names), probes=probes)
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that is listened on (the one given, or a free one for 0)."""
        return int(self._server.server_port)

    def __call__(self, report: Report) -> None:
        """Take a report."""
        self._latest[report.instance] = report, monotonic()

    def collect(self) -> Iterable[Metric]:
        """Return metric families; called by the client library at a scrape."""
        return _families([report for report, _ in tuple(self._latest.values())])

    def _aged(self) -> list[tuple[Report, float]]:
        now = monotonic()
        return [(report, now - came) for report, came in tuple(self._latest.values())]

    def stop(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Reported:
    """A collector of some reports."""

    def __init__(self, reports: Iterable[Report]) -> None:
        self._reports = reports

    def collect(self) -> Iterable[Metric]:
        """Return metric families; called by the client library."""
        return _families(self._reports)


def exposition(reports: Iterable[Report]) -> bytes:
    """Return reports in Prometheus' text format, for a process that has an HTTP server already."""
    registry = CollectorRegistry()
    registry.register(_Reported(tuple(reports)))
    return generate_latest(registry)


def _families(reports: Iterable[Report]) -> Iterable[Metric]:
    families: dict[str, Metric] = {}
    for report in tuple(reports):
        for values in (report.counters, report.gauges):
            _add(families, report, values)
    return families.values()


def _add(families: dict[str, Metric], report: Report, values: Mapping[str, float]) -> None:
    """Add figures to the family of their name: it must be one, whatever labels its samples have."""
    for full, value in values.items():
        name, labels = parse(full)
        family = family_of(name)
        if family not in families:
            kind = "histogram" if family != name else "counter" if is_counter(name) else "gauge"
            families[family] = Metric(NAMESPACE + family.removesuffix(TOTAL), meaning(family), kind)
        shown = {"instance_name": report.instance, "role": report.role, **labels}
        families[family].add_sample(NAMESPACE + name, shown, value)


def family_of(name: str) -> str:
    """Return under which name a figure is shown: its own, or that of the histogram which it is a part of."""
    end = next((end for end in HISTOGRAM if name.endswith(end)), "")
    return name.removesuffix(end) + "_seconds" if end else name


def parse(full: str) -> tuple[str, dict[str, str]]:
    """Split `answers_total{application=digits,status=default}` into name and labels."""
    name, _, rest = full.partition("{")
    pairs = (pair.partition("=") for pair in rest.removesuffix("}").split(",") if pair)
    return name, {label: value for label, _, value in pairs}
