"""Which functions belong to which step of a query's way.

A stack belongs to the step of its innermost frame that has one; of the prefixes of `module:function` that fit a frame
the longest counts. So what a step calls in a library is its own, and what no step called is the event loop's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streams.runtime.sampler import LOOP, THREADS

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
    "schemas.recall:recalling_reader": "decode",
    "schemas.recall:recalling_writer": "encode",
    "<schemas:read_": "decode",
    "<schemas:write_": "encode",
    "streams.operators.applications": "select",
    "streams.operators.cache": "select",
    "streams.operators.asking": "gather",
    "streams.operators.closing": "join",
    "streams.operators.combiner": "combine",
    "streams.operators.combiner:Combiner.next_deadline": "heap",
    "streams.operators.combiner:Combiner.on_timer": "heap",
    "streams.operators.combiner:Combiner.open": "heap",
    "streams.operators.figures:Losses": "fold",
    "streams.operators.folding": "fold",
    "streams.operators.joiner": "join",
    "streams.operators.joiner:Joiner.next_deadline": "heap",
    "streams.operators.joiner:Joiner.on_timer": "heap",
    "streams.operators.learner": "fold",
    "streams.operators.observing": "join",
    "streams.operators.pending": "select",
    "streams.operators.predictions": "combine",
    "streams.operators.recent": "select",
    "streams.operators.seen": "fold",
    "streams.operators.selection": "select",
    "streams.operators.selection:Selection.next_deadline": "heap",
    "streams.operators.selection:Selection.on_timer": "heap",
    "streams.operators.serving": "select",
    "streams.operators.serving:Serving.next_deadline": "heap",
    "streams.operators.serving:Serving.on_outputs": "combine",
    "streams.operators.serving:Serving.on_timer": "heap",
    "streams.operators.shadows": "join",
    "streams.operators.standins": "combine",
    "streams.operators.views": "select",
    "streams.operators.waiting": "join",
    "streams.operators.wheel": "heap",
    "streams.operators.windows": "join",
    "streams.runtime.alarm": "heap",
    "streams.runtime.corrupt": "fetch",
    "streams.runtime.fetch_sessions": "fetch",
    "streams.runtime.follower": "fetch",
    "streams.runtime.garbage": "loop",
    "streams.runtime.kafka_batches": "fetch",
    "streams.runtime.kafka_calls:_Asked": "receive",
    "streams.runtime.kafka_consumer": "fetch",
    "streams.runtime.kafka_consumer:KafkaConsumer.commit": "commit",
    "streams.runtime.kafka_consumer:KafkaConsumer.vitals": "commit",
    "streams.runtime.kafka_fetcher": "fetch",
    "streams.runtime.kafka_inflation": "fetch",
    "streams.runtime.kafka_producer": "append",
    "streams.runtime.kafka_reader": "fetch",
    "streams.runtime.kafka_requests": "append",
    "streams.runtime.kafka_wire:_topic": "receive",
    "streams.runtime.kafka_wire:fetch_request": "fetch",
    "streams.runtime.kafka_wire:produce_request": "append",
    "streams.runtime.kafka_wire:read_": "receive",
    "streams.runtime.keeper": "states",
    "streams.runtime.lanes": "append",
    "streams.runtime.loop:RoleLoop._commit_regularly": "commit",
    "streams.runtime.loop:RoleLoop._complete": "commit",
    "streams.runtime.loop:RoleLoop._report": "report",
    "streams.runtime.loop:RoleLoop.perform": "append",
    "streams.runtime.metrics": "report",
    "streams.runtime.offsets": "commit",
    "streams.runtime.ownership": "commit",
    "streams.runtime.performer": "append",
    "streams.runtime.reader": "fetch",
    "streams.runtime.redis_store": "states",
    "streams.runtime.sizes": "append",
    "streams.runtime.watchdog": "commit",
    "workers.answering": "gather",
    "workers.answering:asked_of": "heap",
    "workers.batcher": "heap",
    "workers.columns": STACK,
    "workers.estimates": "heap",
    "workers.quickness": "heap",
    "workers.executor": "hand over",
    "workers.operator": "gather",
    "workers.operator:ModelWorker.on_records": "heap",
    "workers.operator:ModelWorker.take": "heap",
    "workers.operator:ModelWorker._gather": "heap",
    "workers.operator:ModelWorker.on_handed": "heap",
    "workers.padding": STACK,
    "workers.pool": "hand over",
    "workers.predicting": "hand over",
    "workers.predictor": STACK,
    "workers.process": "hand over",
    "workers.rows": STACK,
    "workers.runtimes": PREDICT,
    "workers.sentinel": "hand over",
    "workers.waking": "hand over",
}
# Of stacks that no rule knows: what the event loop called by itself.
_LOOP_RULES: Final[Mapping[str, str]] = {
    LOOP: "loop",
    THREADS: PREDICT,
    "aiokafka.": "receive",
    "asyncio.": "loop",
    "uvloop": "loop",
}
_MADE = ":__create_fn__"  # methods that dataclasses generate belong to whoever calls them, not to their module


def step_of(stack: tuple[str, ...]) -> str:
    """Return the step of a stack of `module:function`, innermost first; `other` if it has none."""
    frames = [frame for frame in stack if _MADE not in frame]
    for rules in (_RULES, _LOOP_RULES):
        for frame in frames:
            fitting = [prefix for prefix in rules if frame.startswith(prefix)]
            if fitting:
                return rules[max(fitting, key=len)]
    return OTHER
