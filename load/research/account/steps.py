"""Which functions belong to which step of a query's way.

A stack belongs to the step of its innermost frame that has one. If several prefixes of `module:function` fit a frame,
the longest counts. So a library call belongs to the step that made it, and the event loop gets calls without a step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streams.runtime.process.cpu_profiler import LOOP, THREADS

if TYPE_CHECKING:
    from collections.abc import Mapping

OTHER: Final = "other"
PREDICT: Final = "predict"
STACK: Final = "stack"

# In the order in which a query meets them.
STEPS: Final[Mapping[str, str]] = {
    "fetch": "ask the broker for records, take them apart, hand them to the kernel",
    "decode": "bytes to records",
    "select": "remember the id, look up the policy's state, draw the model",
    "gather": "rows of many queries into the columns of one record: model queries, model predictions",
    "encode": "records to bytes",
    "append": "record batches, produce requests, what became of them",
    "heap": "what waits, by when it is due: queries for their models, rows for their batch, predictions for feedback",
    "hand over": "batches to the model, in its thread or not, and back",
    STACK: "check the rows, put them into one array, check the answers",
    PREDICT: "the model itself",
    "combine": "model predictions to the query's answer",
    "join": "prediction and feedback to an observation",
    "fold": "observation into the policy's state",
    "states": "policy states to and from Redis",
    "commit": "which offsets are complete; commits, heartbeats, metadata",
    "receive": "responses off the connections: frames, headers, who waits for them",
    "loop": "the event loop, in C: system calls of sockets and polling, timers, switching tasks",
    "report": "one report a second",
    OTHER: "nothing above",
}

_RULES: Final[Mapping[str, str]] = {
    "aiokafka.client:AIOKafkaClient._md_synchronizer": "commit",
    "aiokafka.client:AIOKafkaClient._metadata_update": "commit",
    "aiokafka.conn:AIOKafkaConnection._handle_frame": "receive",
    "aiokafka.conn:AIOKafkaConnection._read": "receive",
    "aiokafka.consumer.": "fetch",
    "aiokafka.consumer.consumer:AIOKafkaConsumer.commit": "commit",
    "aiokafka.consumer.group_coordinator": "commit",
    "policies.combine": "combine",
    "policies.draw": "select",
    "policies.losses": "join",
    "policies.registry": "fold",
    "redis.": "states",
    "schemas.codec:Codec.decode": "decode",
    "schemas.codec:Codec.encode": "encode",
    "schemas.decoders": "decode",
    "schemas.encoders": "encode",
    "schemas.framing": "decode",
    "schemas.memo:memoising_reader": "decode",
    "schemas.memo:memoising_writer": "encode",
    "<schemas:read_": "decode",
    "<schemas:write_": "encode",
    "streams.operators.configuration": "select",
    "streams.operators.selection.cache": "select",
    "streams.operators.selection.dispatch": "gather",
    "streams.columns.ask": "gather",
    "streams.columns.ask:AskedElsewhere._write": "combine",
    "streams.columns.ask:AskedElsewhere.on_outputs": "combine",
    "streams.columns.join": "join",
    "streams.columns.learn": "fold",
    "streams.columns.answer_columns": "combine",
    "streams.columns.select": "select",
    "streams.columns.select:ColumnSelection._write": "combine",
    "streams.operators.join.outcomes": "join",
    "streams.operators.selection.combiner": "combine",
    "streams.operators.selection.combiner:Combiner.next_deadline": "heap",
    "streams.operators.selection.combiner:Combiner.on_timer": "heap",
    "streams.operators.selection.combiner:Combiner.open": "heap",
    "streams.operators.statistics:Losses": "fold",
    "streams.operators.learn.fold": "fold",
    "streams.operators.join.kernel": "join",
    "streams.operators.join.kernel:Joiner.next_deadline": "heap",
    "streams.operators.join.kernel:Joiner.on_timer": "heap",
    "streams.operators.learn.kernel": "fold",
    "streams.operators.join.observation": "join",
    "streams.operators.selection.pending": "select",
    "streams.operators.selection.answer": "combine",
    "streams.operators.ids": "select",
    "streams.operators.ids:SeenIds": "fold",
    "streams.operators.selection.kernel": "select",
    "streams.operators.selection.kernel:Selection.next_deadline": "heap",
    "streams.operators.selection.kernel:Selection.on_timer": "heap",
    "streams.operators.selection.questions": "select",
    "streams.operators.selection.questions:Questions.flush": "gather",
    "streams.operators.selection.serving": "select",
    "streams.operators.selection.serving:Serving.next_deadline": "heap",
    "streams.operators.selection.serving:Serving.on_outputs": "combine",
    "streams.operators.selection.serving:Serving.on_timer": "heap",
    "streams.operators.join.shadows": "join",
    "streams.operators.selection.state_view": "select",
    "streams.operators.join.buffer": "join",
    "streams.operators.join.timer_wheel": "heap",
    "streams.operators.join.terms": "join",
    "streams.runtime.role.kernel_calls:Timer": "heap",
    "streams.runtime.corrupt": "fetch",
    "streams.runtime.kafka.fast.fetch_sessions": "fetch",
    "streams.runtime.role.follower": "fetch",
    "streams.runtime.process.gc_schedule": "loop",
    "streams.runtime.kafka.fast.record_batches": "fetch",
    "streams.runtime.kafka.fast.whole_batches": "fetch",
    "streams.runtime.kafka.fast.requests:_InFlight": "receive",
    "streams.runtime.kafka.consumer": "fetch",
    "streams.runtime.kafka.consumer:KafkaConsumer.commit": "commit",
    "streams.runtime.kafka.consumer:KafkaConsumer.vitals": "commit",
    "streams.runtime.kafka.fast.fetcher": "fetch",
    "streams.runtime.kafka.fast.outlet": "append",
    "streams.runtime.kafka.fast.source": "fetch",
    "streams.runtime.kafka.fast.inflation": "fetch",
    "streams.runtime.kafka.private": "append",
    "streams.runtime.kafka.producer": "append",
    "streams.runtime.kafka.clients": "fetch",
    "streams.runtime.kafka.log_reader": "fetch",
    "streams.runtime.kafka.merging": "fetch",
    "streams.runtime.kafka.fast.protocol:_topic": "receive",
    "streams.runtime.kafka.fast.protocol:fetch_request": "fetch",
    "streams.runtime.kafka.fast.protocol:produce_request": "append",
    "streams.runtime.kafka.fast.protocol:read_": "receive",
    "streams.runtime.role.state_queue": "states",
    "streams.runtime.role.accumulator": "append",
    "streams.runtime.role.loop:RoleLoop._commit_regularly": "commit",
    "streams.runtime.role.loop:RoleLoop._complete": "commit",
    "streams.runtime.role.loop:RoleLoop._report": "report",
    "streams.runtime.role.loop:RoleLoop.perform": "append",
    "streams.runtime.metrics": "report",
    "streams.runtime.offsets": "commit",
    "streams.runtime.role.rebalance": "commit",
    "streams.runtime.role.effects": "append",
    "streams.runtime.role.local": "hand over",
    "streams.runtime.role.reader": "fetch",
    "streams.runtime.role.poll_buffer": "fetch",
    "streams.runtime.stores.redis": "states",
    "streams.runtime.ports": "append",
    "streams.runtime.role.watchdog": "commit",
    "workers.kernel.model.results": "gather",
    "workers.kernel.model.results:asked_of": "heap",
    "workers.kernel.model.batcher": "heap",
    "workers.inputs.columns": STACK,
    "workers.kernel.model.service_times": "heap",
    "workers.executors.loop_budget": "heap",
    "workers.executors.thread": "hand over",
    "workers.kernel.model.worker": "gather",
    "workers.kernel.model.worker:ModelWorker.on_records": "heap",
    "workers.kernel.model.worker:ModelWorker._gather": "heap",
    "workers.kernel.model.lane": "gather",
    "workers.kernel.model.rollout": "heap",
    "workers.kernel.model.warm_up": "heap",
    "workers.kernel.model.lane:Lane.offer": "heap",
    "workers.kernel.model.lane:Lane.start": "heap",
    "workers.executors.pool": "hand over",
    "workers.executors.models": "hand over",
    "workers.executors.predictor": STACK,
    "workers.executors.process": "hand over",
    "workers.executors.models_process": "hand over",
    "workers.inputs.rows": STACK,
    "workers.runtimes": PREDICT,
    "workers.executors.hang_monitor": "hand over",
}
# Of stacks that no rule knows: what the event loop called by itself.
_LOOP_RULES: Final[Mapping[str, str]] = {
    LOOP: "loop",
    THREADS: PREDICT,
    "aiokafka.": "receive",
    "asyncio.": "loop",
    "uvloop": "loop",
}
_MADE = ":__create_fn__"  # methods that dataclasses generate belong to their caller, not to their module


def step_of(stack: tuple[str, ...]) -> str:
    """Return the step of a stack of `module:function`, innermost first; `other` if it has none."""
    frames = [frame for frame in stack if _MADE not in frame]
    for rules in (_RULES, _LOOP_RULES):
        for frame in frames:
            fitting = [prefix for prefix in rules if frame.startswith(prefix)]
            if fitting:
                return rules[max(fitting, key=len)]
    return OTHER
