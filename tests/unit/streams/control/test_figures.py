"""The control page's figures: rates between reports, silence, sums by application and model."""

from __future__ import annotations

import pytest

from schemas.records import Report
from streams.control.faust_kafka import credentials
from streams.control.figures import FORGOTTEN_AFTER_US, SILENT_AFTER_US, Figures, fold, parse, status

SECOND = 1_000_000


def report(time_us: int, answers: float, instance: str = "selection@1", **gauges: float) -> Report:
    """Make a report of one counter."""
    return Report(instance, "selection", time_us, {"answers_total{application=digits}": answers}, gauges)


def folded(*reports: Report) -> Figures:
    """Fold reports of one instance."""
    figures: Figures | None = None
    for one in reports:
        figures = fold(figures, one)
    assert figures is not None
    return figures


def test_rates_are_taken_between_the_last_two_reports() -> None:
    """Two seconds and 100 answers later, it is 50 a second."""
    assert folded(report(SECOND, 0), report(3 * SECOND, 100))["rates"] == {"answers_total{application=digits}": 50.0}


def test_the_first_report_has_no_rates() -> None:
    """One point gives no slope."""
    assert folded(report(SECOND, 40))["rates"] == {}


def test_a_counter_that_fell_counts_from_nought() -> None:
    """A process that was started again does not give a negative rate."""
    assert folded(report(0, 900), report(SECOND, 10))["rates"] == {"answers_total{application=digits}": 10.0}


def test_an_old_report_changes_nothing() -> None:
    """Reports that are read twice or out of order do no harm."""
    once = folded(report(0, 0), report(2 * SECOND, 10))
    assert fold(once, report(SECOND, 5)) == once


def test_a_silent_process_is_marked_and_later_forgotten() -> None:
    """After missed reports a process is shown as silent, after ten minutes not at all."""
    entry = folded(report(0, 1))
    assert status([entry], SILENT_AFTER_US)["processes"][0]["silent"] is False
    assert status([entry], SILENT_AFTER_US + 1)["processes"][0]["silent"] is True
    assert status([entry], FORGOTTEN_AFTER_US)["processes"] == []


def test_figures_are_summed_over_processes_by_application() -> None:
    """Two selection processes make one row; silent ones do not count."""
    first = folded(report(0, 0, "a"), report(SECOND, 10, "a"))
    second = folded(report(0, 0, "b"), report(SECOND, 30, "b"))
    silent = folded(report(-9 * SECOND, 500, "c"))
    assert status([first, second, silent], SECOND)["applications"] == {
        "digits": {"answers_total": 40.0, "answers_per_s": 40.0}
    }


def test_further_labels_become_part_of_the_column() -> None:
    """Status is told apart, the model is the row."""
    entry = Figures(
        instance="w", role="worker.svc", time_us=0, counters={}, gauges={"rows{model=svc,outcome=ok}": 3.0}, rates={}
    )
    assert status([entry], 0)["models"] == {"svc": {"rows ok": 3.0}}


def test_the_share_of_hits_is_taken_over_all_processes() -> None:
    """Queries that waited for one in flight were spared their model, too; without a cache there is no such figure."""
    counters = {f"cache_total{{model=svc,result={result}}}": 1.0 for result in ("hit", "coalesced", "miss")}
    first, second = (
        Figures(instance=name, role="selection", time_us=0, counters=counters | more, gauges={}, rates={})
        for name, more in (("a", {}), ("b", {"cache_total{model=svc,result=miss}": 3.0}))
    )
    assert status([first, second], 0)["models"]["svc"]["cache_hit_ratio"] == 0.5


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("plain_total", ("plain_total", {})),
        ("a{b=c,d=e}", ("a", {"b": "c", "d": "e"})),
        ("a{context=x=y}", ("a", {"context": "x=y"})),
        ("a{", ("a{", {})),
    ],
)
def test_metric_names_split_into_name_and_labels(metric: str, expected: tuple[str, dict[str, str]]) -> None:
    """Odd names never raise: they come off a topic."""
    assert parse(metric) == expected


def test_a_plain_connection_needs_no_credentials() -> None:
    """The default is a broker without log-in."""
    assert credentials({"bootstrap_servers": "x:1"}) is None


def test_tls_without_a_context_is_refused() -> None:
    """Faust would fall back to plain text in silence."""
    with pytest.raises(ValueError, match="ssl_cafile"):
        credentials({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"})


def test_an_unknown_mechanism_is_refused_with_what_to_do() -> None:
    """The page cannot log in with everything that the other roles can."""
    with pytest.raises(ValueError, match="run the other roles without it"):
        credentials({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"})


def test_user_and_password_are_handed_to_faust() -> None:
    """SCRAM keeps its name and its secret."""
    found = credentials(
        {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_plain_username": "me",
            "sasl_plain_password": "hunter2",
        }
    )
    assert found is not None
    assert (found.username, found.password, found.mechanism.value) == ("me", "hunter2", "SCRAM-SHA-512")
