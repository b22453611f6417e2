"""The command line: `skysail VERB`. Each group of verbs has a file. This one finds the verb and words its failures.

A verb is imported when it is used: `skysail --help` must not load scikit-learn, Kafka clients and matplotlib. Only this
table and `workers.packages.loading` import by name.
"""

from __future__ import annotations

from deploy.process.interrupts import named_extras, quiet_interrupts

with quiet_interrupts(), named_extras():  # before anything else: the imports take a third of a second
    import importlib
    import logging
    import os
    import sys
    from typing import TYPE_CHECKING, NamedTuple, NoReturn

    import click

    from deploy.cli.common import VerbGroup
    from deploy.errors import DeployError
    from deploy.terminal import echo
    from policies.errors import PolicyError
    from schemas.errors import FormatError
    from streams.runtime.errors import StreamError
    from workers.errors import WorkerError

if TYPE_CHECKING:
    from collections.abc import Iterator

# A person can put these right. The message says how; a traceback would hide it.
EXPECTED = (DeployError, PolicyError, FormatError, StreamError, WorkerError)
INTERRUPTED = 130  # 128 + SIGINT, as shells have it


class Entry(NamedTuple):
    """Where a verb lives, what `skysail --help` says about it, and which extra brings all that it imports."""

    module: str
    help: str
    extra: str = "cli"


VERBS = {
    "demo": Entry(
        "deploy.cli.demo", "Watch five models compete, one break, and the policy walk away from it.", "bench"
    ),
    "run": Entry("deploy.cli.run", "Run all roles, or those named.", "worker"),
    "kafka": Entry("deploy.cli.services", "Start and stop a local Apache Kafka.", "local"),
    "redis": Entry("deploy.cli.services", "Start and stop a local Redis.", "local"),
    "topics": Entry("deploy.cli.topics", "Create, check and describe the topics."),
    "model": Entry("deploy.cli.model", "Package models, deploy them, list them."),
    "app": Entry("deploy.cli.app", "Create applications, change them, list them."),
    "map": Entry("deploy.cli.mapping", "Show what an application makes of topics of yours."),
    "parity": Entry("deploy.cli.parity", "Make the models that tell a late output from the other ones.", "torch"),
    "plan": Entry("deploy.cli.plan", "Show which host runs which models, and why."),
    "score": Entry("deploy.cli.score", "Answer a file of rows at once, with a model or an application.", "worker"),
    "dataset": Entry("deploy.cli.dataset", "Write an application's queries, answers and labels as files.", "worker"),
    "loss": Entry("deploy.cli.loss", "Check a loss of your own."),
    "policy": Entry("deploy.cli.policy", "Check a policy of your own against the laws of policies."),
    "states": Entry("deploy.cli.states", "Forget contexts without feedback for a long time."),
    "query": Entry("deploy.cli.query", "Ask an application and print the prediction."),
    "feedback": Entry("deploy.cli.feedback", "Report the true answer of a query."),
    "story": Entry("deploy.cli.story", "Tell what became of one query, from the question to what it taught."),
    "dlq": Entry("deploy.cli.dlq", "Count and read dead letters, and send them again."),
    "metrics": Entry("deploy.cli.metrics", "Write alert rules for Prometheus, and a dashboard for Grafana."),
    "k8s": Entry("deploy.cli.k8s", "Write what the Helm chart and Strimzi need, from the settings."),
    "tail": Entry("deploy.cli.tail", "Print the records of a topic, decoded."),
    "record": Entry("deploy.cli.record", "Record topics into a folder, to replay and evaluate them."),
    "trace": Entry("deploy.cli.trace", "Show what a recorded trace holds; make one of other data."),
    "replay": Entry("deploy.cli.replay", "Ask a deployment again what was recorded."),
    "evaluate": Entry(
        "deploy.cli.evaluate", "Say what another policy would have cost, from a trace or a running deployment."
    ),
    "config": Entry("deploy.cli.config", "Show the settings in force, and explain every key."),
    "simulate": Entry("deploy.cli.simulate", "Predict what a deployment would do: how many workers are enough."),
    "load": Entry("deploy.cli.load", "List, run and compare load scenarios.", "bench"),
    "doctor": Entry("deploy.cli.doctor", "Say what runs, what is missing, and what to do."),
}


class Verbs(VerbGroup):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in the order of the table."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a verb."""
        if cmd_name not in VERBS:
            return None
        verb = VERBS[cmd_name]
        with named_extras(verb.extra):
            command: click.Command = getattr(importlib.import_module(verb.module), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of verbs without importing any."""
        with formatter.section("Verbs"):
            formatter.write_dl([(name, verb.help) for name, verb in VERBS.items()])


EXAMPLES = """\
See it work:       skysail demo
Start a broker:    skysail kafka start && skysail redis start
Run the roles:     skysail run --config skysail.yaml
Ask:               skysail query digits --input '[0, 0, 5, ...]'
What is wrong:     skysail doctor
"""


@click.group(
    cls=Verbs, epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(package_name="skysail", prog_name="skysail")
def skysail() -> None:
    """Online prediction on Kafka: competing models, adaptive batches, deadlines, and policies that learn.

    Every verb explains itself: skysail VERB --help
    """


def main() -> None:
    """Run the command line; expected failures become one message each and exit code 1, Ctrl-C becomes 130."""
    # Its complaints about absent brokers come again as one sentence; `skysail run` has its own handlers.
    logging.getLogger("aiokafka").addHandler(logging.NullHandler())
    try:
        with named_extras():  # of what is imported only when it is used
            skysail(prog_name="skysail", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # `skysail tail ... | head`: the reader has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except EXPECTED as error:
        _fail(error)
    except ExceptionGroup as group:  # several roles in one process ended
        if group.split(EXPECTED)[1] is not None:
            raise
        _fail(*_leaves(group))


def _fail(*errors: BaseException) -> NoReturn:
    for error in errors:
        first, *others = str(error).split("\n")
        echo(f"skysail: {first}", *(f"  {line}" for line in others), err=True)
    sys.exit(1)


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
