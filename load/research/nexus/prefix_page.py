"""Results of `prefix` as tables, as the page docs/prefix.md, and as its picture."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from load.research.nexus import prefix
from load.research.nexus.prefix import ASKED, COUNTS, FIGURES, NAME, TRUNKS, WAYS
from load.results.drawing import COLOURS, panels, svg
from load.results.pages import missed
from load.results.tables import Table, number
from load.scenario import Scenario

if TYPE_CHECKING:
    from load.harness.environment import Environment
    from load.results.results import Result

_PICTURE: Final = f"{NAME}.svg"
_ASKED: Final = {"own": "rows of their own", "same": "the same rows"}
_WAYS: Final = {"heads": "heads on one trunk", "whole": "whole models"}
_GAINS: Final = ("gain", "gain_a_head", "models_gain_a_head")
_INTRODUCTION: Final = """\
# Prefix batching: several models on one trunk

Written by `skysail load run prefix --docs docs/prefix.md`.

**Use it** where models were made from one another: one network was trained, and many were fine-tuned in their last
layers, one per customer, language or attribute. Package what they have in common as their *trunk* and the rest as their
*head*. A [host](hosts.md) then holds the trunk once. The rows of all its models that wait go through the trunk in one
batch, and each head gets its own. It pays off most

- where an application asks several of the models about the same row (an ensemble, or many attributes of one picture):
  the row goes through the trunk once;
- where memory is short;
- where a row costs less in a batch, as on a GPU, and each model alone gets too few rows for one.

**Do not** where a row costs as much in a batch as alone and models are asked about different rows: rates stay as they
are, and only memory is saved. Models with a process of their own share nothing.

## How

From Python, where `net` is `nn.Sequential(trunk, head)`:

    package_torch(net[1], "models/cats-1", "cats", "1", x[:5], architecture="my_nets:make_head",
                  trunk=net[0], trunk_architecture="my_nets:make_trunk")

From files that `safetensors.torch.save_file` has written:

    skysail model package cats.safetensors models/cats-1 --name cats --sample rows.npy \\
        --architecture my_nets:make_head --trunk trunk.safetensors --trunk-architecture my_nets:make_trunk

Nothing else has to be said. Trunks are equal if their weights, what builds them and the form of the rows are; the Model
record has the digest. Of a pipeline of arrays that is packaged [in stages](runtimes.md#pipelines-in-stages), all steps
but the last are its trunk.

- A batch is as large as the schedule says, of the rows that are due first, whichever models they are for. A row that
  the whole batch would answer too late expires, as in any batch. All heads have one profile, that of the trunk.
- A head that fails harms its own rows alone. If the trunk fails, each model is asked by itself. If one hangs, or ends
  the process, the first model without an answer is to blame, and the others are asked again.
- Answers are those of each model alone: labels equal, scores within 1e-5, as for any two batches. With `min_rows=16`
  they are equal to the bit.
- Room in memory is counted once for the trunk, as long as one of its models is in memory.
- Models with `allowed_batch_sizes`, and those that take rows by reference, are asked by themselves.

The host's report has `host_joint_batches_total` and `host_joint_parts_total`.
"""
_READING: Final = """\
- Both hosts are the same but for their packages: `aimd`, one lane, one thread for arithmetic, a real Kafka on the same
  machine. Model queries are written to the models' topics without the role selection. Each client asks again when it
  has its answer, so the hosts are always full.
- *A head* is the ratio by the number of models: with 1, k heads cost as much as one whole model. *Models alone* is the
  same for one batch of four rows a model in one process, without host and Kafka. What lies between the two is what rows
  cost there, and that a client which waits for k answers leaves the next batch smaller.
- *The same rows*: a client asks all models about one row, and then about the next. *Rows of their own*: no two models
  are asked about one row.
- Memory is PSS of the host with the process of its models. Most of the first model's is torch.
- Nexus (SOSP'19) has models with a common prefix on a GPU, where a batch of 32 rows takes 4.7 to 13.3 times less a row
  than single ones. Its models must have one objective; here rows keep their own. On a processor a batch gains little,
  which is why models with rows of their own gain so much less here. The figures for the same rows need no such gain.
- Weights are random, and so are rows: what the models answer has no meaning, and what they cost does not depend on it.
"""


def tables(result: Result) -> list[Table]:
    """Return every table, in the order of the page."""
    return [each for trunk in _trunks(result) for each in (_rates(result, trunk), _memory(result, trunk))]


def _trunks(result: Result) -> list[str]:
    return [trunk for trunk in TRUNKS if any(name.startswith(f"{trunk}_") for name in result.figures)]


def _counts(result: Result, trunk: str) -> list[int]:
    return [count for count in COUNTS if f"{trunk}_own_{count}_gain" in result.figures]


def _rates(result: Result, trunk: str) -> Table:
    figures, rows = result.figures, []
    for asked in ASKED:
        for count in _counts(result, trunk):
            of = f"{trunk}_{asked}"
            rates = [number(figures[f"{of}_{way}_{count}_per_s"]) for way in WAYS]
            p50s = [number(figures[f"{of}_{way}_{count}_p50_ms"]) for way in WAYS]
            gains = [f"{figures[f'{of}_{count}_{gain}']:.2f}" for gain in _GAINS]
            rows.append((f"{_ASKED[asked]}, {count}", *rates, *gains, *p50s))
    head = (
        "models asked about",
        "heads, rows/s",
        "whole, rows/s",
        "times",
        "a head",
        "models alone, a head",
        "heads, p50 ms",
    )
    return Table(f"Trunk `{trunk}`", (*head, "whole, p50 ms"), tuple(rows))


def _memory(result: Result, trunk: str) -> Table:
    counts = _counts(result, trunk)
    rows = tuple(
        (
            _WAYS[way],
            *(number(result.figures[f"{trunk}_{way}_{count}_pss_mib"]) for count in counts),
            number(result.figures[f"{trunk}_{way}_a_model_mib"]),
        )
        for way in WAYS
    )
    return Table(f"Memory, trunk `{trunk}` (MiB of PSS) by models", ("", *map(str, counts), "a model more"), rows)


def page(result: Result, environment: Environment) -> str:
    """Return the page."""
    figures, most = result.figures, int(result.parameters["models"])
    machine = f"{environment['cores_usable']} cores of {environment['processor']}; {result.given}."
    machine += f" Load average at the end: {environment['load_average'][0]:.1f}; other work shares the cores."
    said = " ".join(
        f"With the trunk `{trunk}`, {most} heads that are asked about the same rows do"
        f" {figures[f'{trunk}_same_{most}_gain']:.1f} times the rows a second of {most} whole models"
        f" ({figures[f'{trunk}_same_{most}_gain_a_head']:.2f} times {most}), and about rows of their own"
        f" {figures[f'{trunk}_own_{most}_gain']:.1f} times. For the models alone, without host and Kafka, these are"
        f" {figures[f'{trunk}_same_{most}_models_gain']:.1f} and {figures[f'{trunk}_own_{most}_models_gain']:.1f}."
        for trunk in _trunks(result)
    )
    ones = [figures[f"{trunk}_{asked}_1_{gain}"] for trunk in _trunks(result) for asked in ASKED for gain in _GAINS[1:]]
    said += (
        f" {figures['failed']:,.0f} rows failed. With one model both ways do the same work, and the ratio should be 1:"
    )
    said += (
        f" it was {min(ones):.2f} to {max(ones):.2f}, which is how far other work on the machine moves these figures."
    )
    shown = [f"## {table.title}\n\n{table.markdown()}" for table in tables(result)]
    notes = [f"- {sentence}" for sentence in (*result.notes, *missed(result, FIGURES))]
    picture = f"![Rows a second beside whole models, by the number of models]({_PICTURE})\n"
    parts = [_INTRODUCTION, "## As measured\n", _filled(machine), _filled(said), picture, *shown]
    return "\n".join([*parts, "## How to read this\n", _READING.rstrip(), *notes, ""])


def _filled(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False) + "\n"


def plots(result: Result) -> dict[str, str]:
    """Return the picture: how many times the rate of whole models, by their number."""
    trunks = _trunks(result)
    figure, axes = panels(len(trunks), (4.3 * len(trunks), 3.2))
    for its, trunk in zip(axes, trunks, strict=True):
        counts = _counts(result, trunk)
        its.plot(counts, counts, color="black", linewidth=0.8, linestyle=":", label="as many times as models")
        for asked, colour in zip(ASKED, COLOURS, strict=False):
            gains = [result.figures[f"{trunk}_{asked}_{count}_gain"] for count in counts]
            its.plot(counts, gains, marker="o", markersize=3, color=colour, label=_ASKED[asked])
        its.set_title(trunk)
        its.set_xlabel("models on one trunk")
        its.set_ylabel("times the rate of whole models")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=7)
    return {_PICTURE: svg(figure)}


SCENARIO = Scenario(
    prefix.NAME,
    prefix.FIGURES,
    prefix.run,
    "models with one trunk in a host: rows a second, memory and latency beside the same models whole",
    tables=tables,
    page=page,
    plots=plots,
    short=True,
)
