"""What was done about each step of the account; the page prints the paragraphs of the large ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

DONE: Final[Mapping[str, str]] = {
    "fetch": """\
A fetch costs about the same whatever it brings, so a poll takes everything that has arrived and the fixed part is
shared. Joiner and learner pause after each poll, as nobody waits for them (`kafka.linger_ms`); selection and workers
never do, so that at low rates a query often has a fetch of its own on each of its legs: that is the price of latency.
The broker holds fetches that find nothing (`kafka.fetch_wait_ms`) and remembers what it was asked for
(`streams/runtime/kafka/fast/fetch_sessions.py`): a dozen partitions are followed, and one has news. The fetch is
written and read byte for byte, and waits as a callback (`streams/runtime/kafka/fast/protocol.py`, `kafka_fetcher.py`):
aiokafka's own way, a task and an object for each field, cost a quarter of all CPU at low rates. Records are made once,
in the form that kernels take.""",
    "decode": """\
Records are read in C (`schemas/compiled.pyx`), a prediction eleven to twenty times as fast as by the
Python that is generated from its schema (`schemas/decoders.py`), which defines the format, reads all that is unusual,
and everything where there is no compiler. Tensors keep their bytes untouched. A decision, which many predictions share,
is recognised by its bytes and read once. Selection and workers exchange batch records: one envelope for hundreds of
rows. The joiner reads no more than an id (`schemas/framing.py`) until it joins.""",
    "select": """\
What does not depend on the query is worked out once for each state that is read: propensities, weights, the decision
that each draw leads to (`streams/operators/selection/state_view.py`). Names of states are cached. Ids that were seen
are kept in two generations, of which the older is dropped whole: forgetting them one by one cost more than all the rest
of the step (`streams/operators/ids/recent.py`). Redis is never waited for.""",
    "gather": """\
Queries of one poll that go the same way become the columns of one record (`streams/operators/selection/dispatch.py`),
and so do the rows of a worker's batch (`workers/kernel/results.py`). This step is what that costs. What it saves is a
record for each query to encode, append, fetch and decode on both legs between selection and workers (`ModelQueries` in
`schemas/records.py`).""",
    "encode": """\
Written in C, too, beside generated Python (`schemas/encoders.py`). Model queries are written once for all models that
are asked; a decision that was written before is recognised and its bytes are copied.""",
    "append": """\
Whole record batches are built without a future, a task or a log call for each record
(`streams/runtime/role/accumulator.py`). What is sent in one turn of the event loop goes in one request, whatever its
partitions, and several requests may be on their way, which aiokafka's own producer does not do
(`streams/runtime/kafka/fast/produce_queue.py`). Nothing is compressed unless the settings say so.""",
    "heap": """\
Deadlines are kept by the millisecond, so that a heap sees buckets and not queries
(`streams/operators/selection/combiner.py`), and windows of feedback by the second
(`streams/operators/join/timer_wheel.py`). One timer is set to what is due first (`streams/runtime/role/timer.py`). A
worker's rows wait in order of due time, and those that cannot make it are never predicted
(`workers/kernel/batcher.py`).""",
    "hand over": """\
A batch of more than a millisecond crosses to the model's thread once and back once, and the last one is written while
it is predicted (`workers/executors/models.py`). One known to be quicker stays where it is
(`workers/executors/thread.py`).""",
    "stack": """\
Rows are checked by columns and joined as bytes, one copy from the record to the array; no Python runs for each number
(`workers/inputs/rows.py`).""",
    "predict": """\
The model's own time. Batches grow as far as the objective allows (AIMD), and a linear model is arrays,
not scikit-learn (`workers/runtimes/linear.py`); arithmetic has one thread, so that workers do not fight for cores.""",
    "combine": """\
An answer of one model, asked alone and in time, skips voting. Outputs, pending queries and predictions are tuples and
slotted objects, made by position; columns of a worker's batch become Python values in one call
(`streams/operators/selection/combiner.py`).""",
    "join": """\
What waits is an offset and the prediction's bytes; polls are taken by runs of one partition. Up to 64 observations
that are made at once and teach one state travel as one record (`Observations` in `schemas/records.py`): with one each,
this role and the learner took 3 us a query more. The same answer costs the same loss, so it is worked out once for all
arms that gave it, and of labels, which are few, once for all queries (`streams/operators/join/observation.py`).""",
    "fold": """\
A policy's state is a flat tuple, folded in memory; what a poll has changed is written to Redis once
(`streams/operators/learn/kernel.py`). Policies are parsed once for each text, a decision is checked once for all its
observations, and a state is made once for each run of them (`streams/operators/learn/fold.py`).""",
    "states": """\
A state that is less than 100 ms old is not read again, reads of all partitions share a round trip, and a partition's
states and offset are written by one script (`streams/runtime/stores/redis.py`).""",
    "commit": """\
Offsets are committed twice a second, however many records that is; completed positions are counted by partition, as
prefixes (`streams/runtime/offsets.py`).""",
    "receive": """\
One frame a response, read by aiokafka; fewer and fuller requests are what makes it small, as for the event loop.""",
    "loop": """\
System calls of sockets and polling, paid once a request. uvloop makes them; requests are merged and, where nobody
waits, delayed. There is no task, timer or future for a query, and what lives after the start is taken out of the
garbage collector's sight; what is new it looks at twice a minute and not every 20,000 objects, which took a sixth of
selection's time with many queries in hand (`streams/runtime/process/gc_schedule.py`).""",
    "report": """\
One report a second from each process, whatever the rate.""",
    "other": """\
Stacks that the rules in `load/research/account/steps.py` do not know; the dearest functions among them are listed
above.""",
}
