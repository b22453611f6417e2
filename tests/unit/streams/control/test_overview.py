"""What the page shows at a glance: figures of the last minute, series of the last five, and what is wrong, in words."""

from __future__ import annotations

import pytest

from deploy.local.process import free_port
from schemas.records import STOPPED
from streams.control.history import STEP_US, STEPS, Key, keys
from streams.control.losses import WorseLoss
from streams.control.page.visibility import DeploymentSettings
from tests.overview_page import COMPLETE, DEFAULTS, SECOND, Page
from tests.pages import busy_state, now_us


def answering(answers: float, defaults: float, **more: float) -> Page:
    """Return a page that knows of so many answers in its first ten seconds."""
    page = Page()
    page.everybody()
    page.later(10)
    page.everybody()
    page.report("selection@2", {COMPLETE: 0.0})
    page.later(0.1)
    page.report("selection@2", {COMPLETE: answers - defaults, DEFAULTS: defaults, **more})
    return page


def test_rate_and_shares_are_of_the_last_minute() -> None:
    """A hundred answers in ten seconds are ten a second; a tenth of them are defaults, by reason."""
    row = answering(100, 10).shown()["applications"][0]
    assert (row["name"], round(row["rate"]), row["defaults"], row["in_time"]) == ("digits", 10, 0.1, 0.9)
    assert row["reasons"] == {"deadline": 0.1}


def test_partial_answers_are_told_by_their_reason() -> None:
    """Answers that were decoded count as answers of models, and are told apart from complete ones."""
    decoded = "answers_total{application=digits,status=partial,reason=reconstructed}"
    row = answering(60, 0, **{decoded: 40.0}).shown()["applications"][0]
    assert (row["in_time"], row["partial"], row["partials"]) == (1.0, 0.4, {"reconstructed": 0.4})


def test_shares_of_losses_are_nothing_that_an_application_holds() -> None:
    """Its notes say what it has in hand, and how much of it."""
    page = answering(100, 0)
    page.report("selection@1", {"full_loss_share{application=digits}": 0.9, "held{application=digits}": 3.0})
    assert [each["name"] for each in page.shown()["applications"][0]["holds"]] == ["held"]


def test_a_default_that_came_late_counts_once_against_what_was_in_time() -> None:
    """Ten defaults, all after the deadline, and five late answers of models: 85 of 100 are in time."""
    late = "late_answers_total{application=digits,status=%s}"
    row = answering(100, 10, **{late % "default": 10.0, late % "complete": 5.0}).shown()["applications"][0]
    assert (row["late"], row["in_time"]) == (0.15, 0.85)


def test_what_rose_in_an_earlier_minute_is_only_in_the_series() -> None:
    """The figures are of now; the plot still shows what was."""
    page = answering(100, 10)
    page.later(90)
    page.everybody()
    assert page.shown()["applications"] == []
    page.later(1)
    page.report("selection@1", {"deployed{application=digits,policy=exp3}": 1.0})
    [row] = page.shown()["applications"]
    assert (row["policy"], row["rate"], row["defaults"]) == ("exp3", 0.0, None)
    assert max(value or 0.0 for value in row["rates"]) == 20.0  # a hundred in one step


def test_a_model_has_its_share_weight_loss_and_batches() -> None:
    """Of the application: who was asked and what it cost; of its worker: batches, queue, latency, version."""
    page = Page()
    labels = "application=digits,model=svc"
    asked = {f"asked_total{{{labels}}}": 0.0, f"asked_total{{{labels[:-3]}tree}}": 0.0}
    for moment in (0.0, 1.0):
        failed = {f"failed_outputs_total{{{labels},outcome=failed}}": moment * 3}
        page.report("selection@1", dict.fromkeys(asked, moment * 30) | failed | {f"policy_weight{{{labels}}}": 0.75})
        page.report(
            "learner@1",
            {
                **{
                    f"model_{name}_total{{{labels}}}": moment * rise
                    for name, rise in (("loss", 1), ("losses", 4), ("cost", 40))
                },
                **{f"{name}_total{{application=digits}}": moment * rise for name, rise in (("loss", 1), ("losses", 5))},
            },
        )
        page.report(
            "worker.svc@1",
            {
                "batch_rows_total{model=svc}": moment * 60,
                "batches_total{model=svc,reason=cap}": moment * 5,
                "batch_cap{model=svc}": 16.0,
                "queue_rows{model=svc}": 3.0,
                "model_p99_us{model=svc}": 4_500.0,
                "serving{model=svc,version=2}": 1.0,
            },
        )
        page.later(5)
    page.report("selection@1", {"deployed{application=digits,policy=exp3}": 1.0, f"policy_weight{{{labels}}}": 0.75})
    svc, tree = page.shown()["applications"][0]["models"]
    assert (svc["share"], svc["weight"], svc["loss"], svc["failed"]) == (0.5, 0.75, 0.25, 0.1)
    assert (svc["cost"], page.shown()["applications"][0]["cost"]) == (10_000.0, None)
    assert (svc["batch_rows"], svc["batch_cap"], svc["queue_rows"], svc["p99_ms"], svc["version"]) == (
        12,
        16,
        3,
        4.5,
        "2",
    )
    assert (tree["share"], tree["weight"], tree["batch_cap"]) == (0.5, None, None)


def test_where_a_model_has_several_versions_each_has_its_label_share_and_loss() -> None:
    """Two canaries, a shadow and the version that serves; of a model in one version there is nothing to compare."""
    page = Page()
    gauges = {
        "serving{model=svc,version=1}": 1.0,
        "canary{model=svc,version=3}": 0.2,
        "canary{model=svc,version=2}": 0.1,
        "shadow{model=svc,version=4}": 1.0,
        "serving{model=tree,version=1}": 1.0,
    }
    asked = ["asked_total{application=digits,model=svc}", "asked_total{application=digits,model=tree}"]
    label = "{application=digits,model=svc,version=4}"
    for moment in (0.0, 8.0):
        counted = {f"version_joined_total{label}": moment, f"version_loss_total{label}": moment / 4}
        page.report("joiner@1", counted)
        page.report("selection@1", dict.fromkeys(asked, moment))
        page.report("worker.svc@1", gauges)
        page.report("worker.svc@2", gauges)
        page.later(2)
    page.report("selection@1", {"deployed{application=digits,policy=exp3}": 1.0})
    svc, tree = page.shown()["applications"][0]["models"]
    assert [(row["version"], row["label"], row["share"], row["loss"]) for row in svc["versions"]] == [
        ("1", "stable", 0.7, None),
        ("2", "canary", 0.1, None),
        ("3", "canary", 0.2, None),
        ("4", "shadow", 0.0, 0.25),
    ]
    assert tree["versions"] == []


def test_nothing_is_wrong_while_all_report() -> None:
    """A quiet deployment has no alerts."""
    page = Page()
    page.everybody()
    assert page.texts() == []


def test_a_silent_role_stands_at_the_top_with_how_to_start_it() -> None:
    """A worker that nobody stands in for is what users notice."""
    page = Page()
    page.report("worker.svc@1")
    page.later(12)
    page.everybody()
    text = "worker.svc@1 was last heard 12 s ago: its model answers nothing; `skysail run` starts again what has ended"
    assert page.texts() == [f"bad: {text}, and nothing that hangs. Else: $ skysail run --role worker --model svc"]


def test_a_process_that_hangs_is_named_by_its_number() -> None:
    """Nobody ends it by himself, as it may only be slow: who is called at night is told how."""
    page = Page()
    page.report("worker.svc@1", pid=4711.0)
    page.later(12)
    page.everybody()
    (text,) = page.texts()
    assert "if process 4711 is still there, kill -9 4711. Else:" in text


def test_a_recorder_is_missed_only_where_there_was_one() -> None:
    """Nobody needs one; one that falls silent loses what Kafka deletes meanwhile."""
    page = Page()
    page.report("record@1")
    page.later(12)
    page.everybody()
    (alert,) = page.texts()
    assert alert.startswith("bad: record@1 was last heard 12 s ago: nothing is recorded;")
    assert alert.endswith("$ skysail run --role record")


def test_a_role_that_never_reported_is_missed() -> None:
    """Without a learner nothing is learnt, whether it died or was never started."""
    page = Page()
    page.report("selection@1")
    page.report("joiner@1")
    assert page.texts() == [
        "bad: no learner reports: nothing is learnt; observations wait in Kafka $ skysail run --role learner"
    ]


def test_one_silent_process_of_several_is_a_warning() -> None:
    """The others go on."""
    page = Page()
    page.report("joiner@2")
    page.later(9)
    page.everybody()
    assert page.texts() == ["warn: joiner@2 was last heard 9 s ago; others of its role go on $ skysail doctor"]


def test_what_was_stopped_and_started_again_has_not_died() -> None:
    """It said in its last report that it had been told to stop."""
    page = Page()
    page.report("learner@1", {"cpu_seconds_total": 9.0}, **{STOPPED: 1.0})
    page.later(9)
    page.everybody()
    page.report("learner@1", {"cpu_seconds_total": 0.5}, uptime_s=1)
    page.report("control@1", {"cpu_seconds_total": 9.0})
    page.later(1)
    page.report("control@1", {"cpu_seconds_total": 0.5}, uptime_s=1)
    assert not any("died" in text for text in page.texts())


def test_a_restart_is_told() -> None:
    """A process that has used less CPU time than before is another one under the same name."""
    page = Page()
    page.report("learner@1", {"cpu_seconds_total": 9.0})
    page.later(1)
    page.everybody()
    page.report("learner@2", {"cpu_seconds_total": 9.0})
    assert [row["restarts"] for row in page.shown()["processes"]] == [0, 1, 0, 0]
    page.later(1)
    page.report("learner@1", {"cpu_seconds_total": 0.5}, uptime_s=60)
    text = "warn: learner@1 died; its log, learner@1 under Processes, says why, unless it was killed. It was started"
    assert page.texts() == [f"{text} again 60 s ago $ skysail doctor"]
    page.later(1)
    page.report("learner@1", {"cpu_seconds_total": 9.0}, uptime_s=121)
    assert page.texts() == [], "its successor is healthy, and the table keeps the number"
    assert [row["restarts"] for row in page.shown()["processes"]] == [0, 1, 0, 0]


def test_many_defaults_are_told_with_their_reason() -> None:
    """A tenth of the answers without a model is a fault; one in a hundred is not."""
    assert answering(100, 1).texts() == []
    [text] = answering(100, 10).texts()
    assert text == (
        "bad: digits: 10% of the answers are the default, most because no model had answered by the deadline"
        " $ skysail tail model-predictions --count 5"
    )


@pytest.mark.parametrize(("cores", "command"), [(0.9, "skysail run --role selection"), (0.1, "skysail doctor")])
def test_late_answers_are_told_with_what_helps(cores: float, command: str) -> None:
    """Another process of selection, but only if the one there is has enough to do."""
    late = "late_answers_total{application=digits,status=complete}"
    page = answering(100, 0, **{late: 20.0})
    page.report("selection@1", {"cpu_seconds_total": 1.0})
    page.later(1)
    page.report("selection@1", {"cpu_seconds_total": 1.0 + cores})
    [text] = page.texts()
    assert text.startswith("bad: digits: 20% of the answers left after their deadline")
    assert text.endswith(f"$ {command}")


def test_one_dead_letter_is_not_many() -> None:
    """The alert counts in plain English."""
    page = Page()
    page.everybody()
    name = "dead_letters_total{cause=late,topic=feedback}"
    page.report("joiner@2", {name: 3.0})
    page.later(1)
    page.report("joiner@2", {name: 4.0})
    assert page.texts()[0].startswith("warn: 1 dead letter in the last minute: feedback")


def test_dead_letters_of_the_last_minute_are_told_and_older_ones_only_listed() -> None:
    """What is in the topic since yesterday needs nobody tonight."""
    page = Page()
    page.everybody()
    name = "dead_letters_total{cause=late,topic=feedback}"
    page.report("joiner@2", {name: 3.0})
    page.later(1)
    page.report("joiner@2", {name: 5.0})
    command = "skysail dlq show --topic feedback --cause late"
    assert page.shown()["dead_letters"] == [
        {"topic": "feedback", "lies_with": "feedback", "cause": "late", "minute": 2.0, "total": 5.0, "command": command}
    ]
    [text] = page.texts()
    assert text.startswith("warn: 2 dead letters in the last minute: feedback, cause late $ skysail dlq show --topic")
    for _ in range(9):
        page.later(10)
        page.everybody()
        page.report("joiner@2", {name: 5.0})
    assert page.texts() == []


def test_letters_of_others_topics_are_shown_from_where_they_lie() -> None:
    """They share one topic; the page asks for those, as its command does."""
    page = Page()
    page.everybody()
    page.report("mapping@1", {"dead_letters_total{cause=invalid,topic=/orders}": 3.0})
    (row,) = page.shown()["dead_letters"]
    assert (row["topic"], row["lies_with"]) == ("/orders", "mapping")
    assert "--topic mapping" in row["command"]


def test_a_lag_that_grows_is_told() -> None:
    """Twice what it was half a minute ago, and more than a poll brings."""
    page = Page()
    for lag in (100.0, 200.0, 400.0, 600.0, 800.0, 900.0, 1_000.0):
        page.everybody()
        page.report("joiner@1", lag=lag)
        page.report("joiner@2", lag=lag)
        page.later(5)
    page.now_us -= 5 * SECOND
    assert page.texts() == [
        "warn: joiner@2 falls behind: 1,000 records are unread, and it grows $ skysail run --role joiner"
    ]


def test_a_model_that_no_worker_serves_is_told() -> None:
    """Its queries end as defaults, and the command starts it."""
    page = Page()
    page.everybody()
    page.later(1)
    one = "candidate{application=digits,model=%s}"
    deployed = {"deployed{application=digits,policy=exp3}": 1.0, one % "svc": 1.0, one % "tree": 1.0}
    page.report("selection@1", deployed)
    page.report("worker.svc@1", {"serving{model=svc,version=1}": 1.0})
    assert page.texts() == ["bad: digits: no worker serves tree $ skysail run --role worker --model tree"]
    page.hosted = {"tree"}
    assert page.texts() == []


def test_the_history_is_bounded() -> None:
    """Five minutes are kept, whatever runs through the night."""
    page = Page()
    for _ in range(3 * STEPS):
        page.report("selection@1", {COMPLETE: page.now_us / SECOND})
        page.later(STEP_US / SECOND)
    assert len(page.history.series(lambda step: 1.0, page.now_us)) == STEPS
    seconds, risen = page.history.since(10**12, page.now_us)
    assert seconds <= (STEPS + 1) * STEP_US / SECOND
    assert risen[Key("answers_total", "digits")] <= (STEPS + 1) * STEP_US / SECOND


def test_a_counter_adds_to_its_sums() -> None:
    """By status with and without the reason; by application with and without the model."""
    assert [key.rest for key in keys(DEFAULTS)] == ["", "default", "default deadline"]
    assert keys("asked_total{application=a,model=m}") == (Key("asked_total", "a", "m"), Key("asked_total", "a"))
    assert keys("lane_batches_total") == ()


def test_while_nothing_comes_back_from_kafka_it_alone_is_told() -> None:
    """The page's own report does not return: of nobody else is anything known, and nobody else is accused."""
    page = Page()
    page.everybody()
    page.report("worker.svc@1")
    page.report("control@1")
    page.sight.sent(page.now_us + SECOND)
    page.later(40)
    [text] = page.texts()
    assert text.startswith("bad: Kafka does not answer at 127.0.0.1:9092: this page has heard nothing for 40 s")
    assert text.endswith("$ skysail doctor")
    shown = page.shown()
    assert (shown["level"], shown["stale_s"], shown["kafka"]) == ("bad", 40.0, "127.0.0.1:9092")
    assert not any(row["silent"] for row in shown["processes"]), "the figures are those of before"


async def test_where_nobody_listens_for_kafka_on_this_machine_the_command_starts_it() -> None:
    """A refused connection tells a broker that is gone from one that hangs."""
    page, port = Page(), free_port()
    page.sight.place = DeploymentSettings(instance="control@1", kafka=f"127.0.0.1:{port}")
    page.report("control@1")
    page.sight.sent(page.now_us)
    page.later(10)
    await page.sight.listen([page.sight.place.kafka])
    assert page.shown()["alerts"][0]["command"] == f"skysail kafka start --port {port}"


def test_who_has_not_reported_since_kafka_came_back_gets_the_time_to() -> None:
    """The page hears itself first."""
    page = Page()
    page.everybody()
    page.report("control@1")
    page.sight.sent(page.now_us)
    page.later(40)
    page.report("control@1")
    assert [alert["level"] for alert in page.shown()["alerts"]] == ["warn"], "Kafka answers again"
    page.later(4)
    page.report("control@1")
    page.later(4)
    page.report("control@1")
    assert [alert["level"] for alert in page.shown()["alerts"]] == ["warn", "bad", "bad", "bad"]


def test_while_redis_does_not_answer_it_is_told_first_and_what_follows_from_it_is_not() -> None:
    """The learner stands still and falls behind: another one would not help."""
    page = Page()
    for number, lag in enumerate((100.0, 200.0, 400.0, 600.0, 800.0, 900.0, 1_000.0)):
        page.report("selection@1")
        page.report("joiner@1")
        page.report("worker.svc@1", {"kernel_failures_total": float(number)})
        page.report("learner@1", {"store_failures_total": float(number)}, lag=lag)
        page.later(5)
    page.now_us -= 5 * SECOND
    redis, other = page.texts()
    assert redis.startswith(
        "bad: Redis does not answer at 127.0.0.1:6379: queries are answered by the states last read"
    )
    assert "errors of the program itself" in other


def test_a_failure_of_redis_that_is_over_is_told_no_longer() -> None:
    """Ten seconds after the last one nobody is woken up."""
    page = Page()
    page.everybody()
    page.later(1)
    page.report("learner@1", {"store_failures_total": 3.0})
    assert page.shown()["level"] == "bad"
    page.later(14)
    page.everybody()
    assert page.texts() == []


def asking(outcome: str, share: float, **counters: float) -> Page:
    """Return a page of two applications that ask one model; the outcome befell the first one's questions alone."""
    page = Page()
    for moment in (0.0, 1.0):
        page.everybody()
        page.report("worker.svc@1", {"serving{model=svc,version=1}": 1.0})
        page.report(
            "selection@2",
            {
                "asked_total{application=careless,model=svc}": moment * 100,
                "asked_total{application=careful,model=svc}": moment * 100,
                f"failed_outputs_total{{application=careless,model=svc,outcome={outcome}}}": moment * 100 * share,
                **{name: moment * value for name, value in counters.items()},
                "deployed{application=careless,policy=exp3}": 1.0,
                "deployed{application=careful,policy=exp3}": 1.0,
            },
        )
        page.later(1)
    page.now_us -= SECOND
    return page


def test_wrong_inputs_are_told_of_the_application_that_sends_them() -> None:
    """Not of the model, nor of who else asks it; what the model takes is shown, and nothing is rolled back."""
    reason = "answers_total{application=careless,status=default,reason=invalid_input}"
    [text] = asking("invalid", 0.66, **{reason: 66.0}).texts()
    assert text.startswith("bad: clients of careless send inputs that are not taken by svc (66% of its queries). Their")
    assert text.endswith("$ skysail model show svc")


def test_a_model_that_raises_is_told_with_its_versions() -> None:
    """Whether there is one to go back to is seen there."""
    assert asking("failed", 0.3).texts() == [
        "bad: careless: svc fails on 30% of its inputs; its worker's log says why $ skysail model show svc"
    ]


def test_in_the_minute_after_kafka_was_away_what_was_late_then_is_not_told_apart() -> None:
    """One warning stands for it; a minute later it is over."""
    page = Page()
    page.report("control@1")
    page.report("selection@2", {DEFAULTS: 0.0})
    page.sight.sent(page.now_us)
    page.later(30)
    late = "late_answers_total{application=digits,status=default}"
    page.report("control@1")
    page.everybody()
    page.report("selection@2", {DEFAULTS: 90.0, late: 90.0, "deployed{application=digits,policy=exp3}": 1.0})
    page.later(4)
    [text] = page.texts()
    assert text.startswith("warn: Kafka answers again, for 4 s")
    page.later(60)
    page.report("control@1")
    assert not any("Kafka answers" in text for text in page.texts())


def test_what_an_application_holds_and_is_refused_is_shown_with_its_share() -> None:
    """Gauges and counters by application that the roles may or may not have."""
    refused = "answers_total{application=digits,status=default,reason=over_limit}"
    limited = "over_limit_total{of=predictions,application=digits}"
    page = answering(100, 0)
    page.later(1)
    gauges = {"held{application=digits}": 7.0, "held_limit{application=digits}": 25.0, "states_bytes": 2e6}
    gauges["deployed{application=digits,policy=exp3}"] = 1.0
    page.report("selection@2", {COMPLETE: 100.0, refused: 3.0, limited: 5.0, **gauges}, clock_off_ms=400.0)
    page.later(1)
    row = page.shown()["applications"][0]
    assert row["holds"] == [{"name": "held", "value": 7.0, "limit": 25.0}]
    assert row["turned_away"] == {"queries": 3.0, "predictions": 5.0}
    process = page.shown()["processes"][-1]
    assert (process["clock_off_ms"], process["holds"]) == (
        400.0,
        [{"name": "states_bytes", "value": 2e6, "limit": None}],
    )
    [text] = page.texts()
    assert text.startswith("warn: digits has its share of what may wait: 5 predictions were turned away")


def test_many_queries_decided_without_their_state_are_told() -> None:
    """They are answered, by what the policy begins with."""
    [text] = answering(100, 0, **{"decided_without_state_total{application=digits}": 40.0}).texts()
    assert text.startswith("warn: digits: 40% of its queries were decided before their policy's state was read")


def test_losses_that_are_all_the_largest_are_told() -> None:
    """A regression without a span learns nothing, and would look well."""
    labels = "{application=prices}"
    page = Page()
    for moment in (0.0, 1.0):
        page.everybody()
        page.report("learner@2", {f"loss_total{labels}": moment * 99.5, f"losses_total{labels}": moment * 100})
        page.report("selection@2", {"deployed{application=prices,policy=exp3}": 1.0})
        page.later(1)
    page.now_us -= SECOND
    [text] = page.texts()
    assert text.startswith("warn: prices: nearly every loss is 1")
    assert text.endswith("$ skysail app show prices")


def test_commands_are_quoted() -> None:
    """A name that a shell would act on is one word of the command."""
    page = Page()
    page.everybody()
    page.report("worker.a; curl evil@1")
    page.later(7)
    page.everybody()
    [text] = page.texts()
    assert text.endswith("$ skysail run --role worker --model 'a; curl evil'")


def test_a_version_that_is_wanted_and_fails_is_told_with_the_way_back() -> None:
    """And a model of which no version could be loaded, which otherwise looks as if it was served."""
    page = Page()
    page.everybody()
    page.report(
        "worker.forest@1",
        {"serving{model=forest,version=2}": 1.0, "version_failing{model=forest,version=4}": 1.0},
    )
    lost = {"serving", "version_failing"}
    page.report(
        "worker.rule@1",
        {f"{name}{{model=rule,version=1}}": 1.0 for name in lost} | {"model_not_loaded{model=rule}": 1.0},
    )
    first, second = page.texts()
    assert first.startswith("bad: rule cannot be loaded")
    assert second == ("bad: forest 4 is wanted, 2 answers; see its worker's log $ skysail model rollback forest")


FAULT = "version_fault{model=forest,version=%s,reason=+data+forest:_model.skops_is_missing}"


def test_a_version_that_could_not_be_loaded_is_told_with_its_attempts_and_the_reason() -> None:
    """Also one that is to run beside the one that serves; one that was given up says what to do."""
    page = Page()
    page.everybody()
    failing = {"serving{model=forest,version=2}": 1.0, "version_failing{model=forest,version=4}": 1.0}
    given_up = {FAULT % "4": 31.0, "version_given_up{model=forest,version=4}": 1.0, FAULT % "3": 1.0}
    page.report("worker.forest@1", failing | given_up)
    page.report("worker.forest@2", failing | {FAULT % "4": 2.0})
    wanted, beside = page.texts()
    assert wanted == (
        "bad: forest 4 is wanted, 2 answers; tried 31 times, and no more: add it again once it is mended"
        " (/data/forest: model.skops is missing) $ skysail model rollback forest"
    )
    assert beside == (
        "warn: forest 3 cannot run beside the version that serves; tried once (/data/forest: model.skops is missing)"
        " $ skysail model show forest"
    )


def test_versions_that_stand_by_are_shown_with_their_labels() -> None:
    """A version that serves and has a label, too."""
    page = Page()
    page.everybody()
    standing = {"standby{model=forest,version=1}": 1.0, "canary{model=forest,version=3}": 0.25}
    given = {
        "labelled{model=forest,version=2,label=tested}": 1.0,
        "labelled{model=forest,version=1,label=nightly}": 1.0,
        "labelled{model=forest,version=1,label=audited}": 1.0,
    }
    page.report("worker.forest@1", {"serving{model=forest,version=2}": 1.0} | standing | given)
    asked = {"candidate{application=digits,model=forest}": 1.0, "deployed{application=digits,policy=exp3}": 1.0}
    page.report("selection@2", asked)
    (application,) = page.shown()["applications"]
    (forest,) = [row for row in application["models"] if row["name"] == "forest"]
    assert [(row["version"], row["label"], row["share"]) for row in forest["versions"]] == [
        ("2", "stable, tested", 0.75),
        ("1", "standby, audited, nightly", 0.0),
        ("3", "canary", 0.25),
    ]


def test_a_worker_that_was_stopped_is_forgotten_once_nobody_may_ask_its_model() -> None:
    """Its model was removed; while an application names it, the silence is told."""
    page = Page()
    page.everybody()
    page.report("worker.rule@1", stopped=1.0)
    asked = {"candidate{application=digits,model=rule}": 1.0, "deployed{application=digits,policy=exp3}": 1.0}
    for candidates, told in ((asked, True), ({}, False)):
        page.later(6)
        page.everybody()
        page.report("selection@2", candidates)
        page.later(0.1)
        assert any("worker.rule" in text for text in page.texts()) is told
        assert any(row["role"] == "worker.rule" for row in page.shown()["processes"]) is told


def test_second_questions_are_shown_as_shares_of_the_answers() -> None:
    """Those of cascades, and those to another replica, over all its models."""
    escalated = "steps_total{application=digits,kind=escalate,outcome=asked}"
    hedged = [f"hedges_total{{application=digits,model={name},outcome=asked}}" for name in ("svc", "tree")]
    page = answering(100, 0)
    page.later(1)
    page.report("selection@2", {COMPLETE: 100.0, escalated: 40.0, **dict.fromkeys(hedged, 2.0)})
    page.later(1)
    assert page.shown()["applications"][0]["again"] == {
        "asked a dearer model, too": 0.4,
        "asked another replica, too": 0.04,
    }


def test_rows_of_stages_without_an_output_are_shown_as_shares_of_their_stage() -> None:
    """What went well is not told: a graph of which nothing is said is as it should be."""
    rows = "stages_total{application=digits,stage=%s,outcome=%s}"
    page = answering(
        10, 0, **{rows % ("find", "ok"): 10.0, rows % ("cars", "ok"): 30.0, rows % ("cars", "left_out"): 10.0}
    )
    assert page.shown()["applications"][0]["again"] == {"of the rows of stage cars: left out": 0.25}


def test_a_promise_of_coverage_is_shown_with_what_became_of_it() -> None:
    """Over the last five minutes; an application without a promise has none."""
    judged, made = "label_sets_judged_total{application=digits,outcome=", "label_sets_total{application=digits,kind="
    page = answering(100, 0)
    assert page.shown()["applications"][0]["coverage"] is None
    promise = {"coverage_promised{application=digits}": 0.9}
    page.report("selection@2", promise)
    page.report("learner@2")
    page.later(STEP_US / SECOND)
    sizes = {"label_set_sizes_total{application=digits}": 144.0}
    page.report("selection@2", {**promise, **sizes, f"{made}some}}": 96.0, f"{made}all}}": 4.0})
    page.report("learner@2", {f"{judged}held}}": 45.0, f"{judged}missed}}": 5.0})
    page.later(STEP_US / SECOND)
    row = page.shown()["applications"][0]
    found = row["coverage"]
    assert found is not None
    assert (found["promised"], found["held"], found["judged"]) == (0.9, 0.9, 50.0)
    assert (found["size"], found["all"]) == (1.5, 0.04)
    assert found["at_most"] > 0.9
    assert [step for step in found["series"] if step is not None] == [0.9]
    assert not any("coverage" in holding["name"] for holding in row["holds"])


def promising(held: float, missed: float) -> Page:
    """Return a page that knows what has become of so many sets of an application that promises 0.9."""
    page = answering(100, 0)
    judged = "label_sets_judged_total{application=digits,outcome=%s}"
    page.report("learner@2", {judged % "held": 0.0, judged % "missed": 0.0})
    page.later(1)
    page.everybody()
    page.report("selection@2", {"coverage_promised{application=digits}": 0.9, COMPLETE: 200.0})
    page.report("learner@2", {judged % "held": held, judged % "missed": missed})
    return page


def test_a_promise_that_is_broken_is_an_alert() -> None:
    """Where chance does not explain it: 800 of 1,000 do, 40 of 50 and 880 of 1,000 do not."""
    [alert] = promising(800, 200).texts()
    assert alert.startswith("bad: digits: 80.0% of 1000 sets of labels held the true one in the last five minutes;")
    assert "promised are 90.0%" in alert
    for held, missed in ((40, 10), (880, 120), (1_000, 0), (0, 0)):
        assert promising(held, missed).texts() == []


def test_of_few_answers_defaults_are_told_with_their_number_and_reason() -> None:
    """Nothing is wrong is not said then; of one in twenty answers or fewer it is."""
    [alert] = answering(8, 3).texts()
    assert alert.startswith("warn: digits: 3 of 8 answers are the default, most because no model had answered by the")
    assert answering(19, 0).texts() == answering(100, 5).texts() == []


def test_sources_of_features_are_shown_with_what_was_imputed() -> None:
    """Nobody asked yet is not the same as nothing imputed."""
    looked_up = {"looked_up{application=digits,source=users}": 1.0, "looked_up{application=digits,source=pages}": 1.0}
    features = "features_total{source=users,outcome=%s}"
    page = answering(100, 0)
    page.report("selection@1", looked_up)
    page.later(1)
    page.report("selection@1", {**looked_up, features % "known": 90.0, features % "imputed": 10.0})
    assert page.shown()["applications"][0]["sources"] == [
        {"name": "pages", "imputed": None},
        {"name": "users", "imputed": 0.1},
    ]


def test_the_busiest_applications_come_first_and_small_differences_change_no_order() -> None:
    """Who has many times the answers stands above; of two that are about as busy, the first by name."""
    page = Page()
    counts = {"a": 10.0, "b": 1_000.0, "c": 1_010.0}
    names = {name: f"answers_total{{application={name},status=complete,reason=}}" for name in counts}
    page.report("selection@1", dict.fromkeys(names.values(), 0.0))
    page.later(5)
    page.report("selection@1", {names[name]: count for name, count in counts.items()})
    assert [row["name"] for row in page.shown()["applications"]] == ["b", "c", "a"]


def muted(outcomes: dict[str, float], asked: float = 100) -> list[str]:
    """Return what is said of a model that was asked so often, and of whose rows so many ended so."""
    page = Page()
    rows = {f"rows_total{{model=m,outcome={name}}}": count for name, count in outcomes.items()}
    serving = {"serving{model=m,version=1}": 1.0}
    for factor in (0.0, 1.0):
        page.later(4)
        page.everybody()
        page.later(0.1)
        page.report("selection@1", {"asked_total{application=digits,model=m}": factor * asked})
        page.report("worker.m@1", {name: factor * count for name, count in rows.items()} | serving)
    return [text for text in page.texts() if "in time" in text]


@pytest.mark.parametrize(
    ("outcomes", "why", "command"),
    [
        ({}, "it hangs, or waits", "skysail model show m"),
        ({"expired": 100.0}, "takes longer", "skysail run --role worker --model m"),
        ({"ok": 3.0, "expired": 97.0}, "takes longer", "skysail run --role worker --model m"),
        ({"unknown_version": 100.0}, "versions that do not run", "skysail model show m"),
    ],
)
def test_a_model_that_answers_nothing_while_its_process_lives_is_told(
    outcomes: dict[str, float], why: str, command: str
) -> None:
    """With the likely cause, by what became of its rows, and what to type."""
    (text,) = muted(outcomes)
    assert text.startswith("bad: m has answered")
    assert why in text
    assert text.endswith(f"$ {command}")


def test_a_model_that_answers_now_and_then_or_is_asked_seldom_is_not_mute() -> None:
    """One in ten is another matter, of which its applications' alerts speak; few questions say little."""
    assert not muted({"ok": 10.0, "expired": 90.0})
    assert not muted({}, asked=19)


def test_batches_that_were_given_up_are_told() -> None:
    """Whoever looks at the page need not read logs."""
    page = Page()
    page.everybody()
    page.report("worker.m@1", {"batches_given_up_total{model=m}": 0.0})
    page.later(1)
    page.report("worker.m@1", {"batches_given_up_total{model=m}": 2.0})
    assert any("m: nobody told the end of 2 of its batches" in text for text in page.texts())


def test_partitions_that_nobody_reads_are_told_with_what_waits_there() -> None:
    """Of several processes each has counted the same records; without any it is a warning."""
    page = Page()
    page.everybody()
    page.report("joiner@a", None, **{"unserved_records{topic=feedback}": 0.0})
    (text,) = [text for text in page.texts() if "partitions" in text]
    assert text == "warn: partitions were added to feedback; the ones from before are served $ skysail topics check"

    page.report("selection@a", None, **{"unserved_records{topic=queries}": 1_200.0})
    page.report("selection@b", None, **{"unserved_records{topic=queries}": 1_200.0})
    (text,) = [text for text in page.texts() if "partitions" in text]
    assert text.startswith("bad: 1,200 records in queries are read by nobody: they lie in partitions that were added")


def test_queries_that_expire_on_arrival_are_told_with_when_they_were_sent() -> None:
    """By their senders' clocks, which are likely to be wrong."""
    page = Page()
    page.everybody()
    page.report("selection@1", {"answers_total{application=digits,status=default,reason=expired}": 0.0})
    page.later(10)
    told = {"answers_total{application=digits,status=default,reason=expired}": 90.0}
    page.report("selection@1", {**told, "expired_sent_ago_us{application=digits}": 3_000_000.0})
    (text,) = [text for text in page.texts() if "digits" in text]
    assert "most because they come expired: sent 3.0 s ago by their senders' clocks" in text
    assert page.shown()["applications"][0]["holds"] == []


def test_answers_are_shown_by_how_long_they_took_beside_the_objective() -> None:
    """Cumulative counts become shares of spans; the legs of a model are told beside them."""
    end = now_us()
    view = busy_state(end).shown(end)["overview"]
    (fraud,) = [row for row in view["applications"] if row["name"] == "fraud"]
    assert fraud["holds"] == []  # an objective is nothing that is held
    assert fraud["times"]["bounds_ms"] == [5.0, 10.0, 20.0, 40.0]
    assert fraud["times"]["objective_ms"] == 20.0
    assert fraud["times"]["shares"] == pytest.approx([0.4, 0.4, 0.12, 0.0, 0.08], abs=1e-3)
    assert fraud["models"][0]["budget"] == {"wait": 2.4, "predict": 0.9}


def worsened(selection: dict[str, float]) -> Page:
    """Return a page on which answers of fraud have become worse, and selection reports this."""
    page = Page()
    page.everybody()
    page.risen_losses = [WorseLoss("fraud", "", page.now_us, 0.05, 0.9)]
    page.later(1)
    page.report("selection@1", selection)
    return page


def test_losses_of_an_application_that_was_removed_are_not_told() -> None:
    """Nobody can do anything about them; of those that are deployed they are told."""
    deployed = {"deployed{application=fraud,policy=exp3}": 1.0}
    assert any("fraud have become worse" in text for text in worsened(deployed).texts())
    assert not any("fraud" in text for text in worsened({"deployed{application=digits,policy=exp3}": 1.0}).texts())
    assert not any("fraud" in text for text in worsened({}).texts())


def test_losses_are_told_where_the_page_does_not_know_which_applications_exist() -> None:
    """Selection is silent, or has so many applications that it does not name them all."""
    page = worsened({"deployed{application=digits,policy=exp3}": 1.0})
    page.later(10)
    page.report("control@1")
    assert any("fraud have become worse" in text for text in page.texts())
    many = {f"deployed{{application=a{number},policy=exp3}}": 1.0 for number in range(1_100)}
    assert any("fraud have become worse" in text for text in worsened(many).texts())
