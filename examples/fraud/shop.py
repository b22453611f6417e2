"""A shop that knows nothing of Skysail: it writes orders as JSON, reads them back scored, and reports chargebacks."""

import json
import os
import time
import uuid

import numpy as np
from confluent_kafka import Consumer, Producer

KAFKA = {"bootstrap.servers": os.environ.get("SKYSAIL_KAFKA__BOOTSTRAP", "127.0.0.1:9092")}
ORDERS = int(os.environ.get("ORDERS", "200"))
PATIENCE_S = 60

rng = np.random.default_rng(1)
shop = uuid.uuid4().hex[:8]
producer = Producer(KAFKA)
consumer = Consumer({**KAFKA, "group.id": shop, "auto.offset.reset": "earliest"})
consumer.subscribe(["example.orders.scored"])

orders = {}
for number in range(ORDERS):
    order = {"order_id": f"{shop}-{number}", "amount": round(rng.gamma(2, 100), 2), "items": int(rng.integers(1, 9))}
    orders[order["order_id"]] = order
    producer.produce("example.orders", json.dumps({**order, "status": "new"}), key=order["order_id"])
producer.flush()

scored, end = {}, time.monotonic() + PATIENCE_S
while len(scored) < ORDERS and time.monotonic() < end:
    message = consumer.poll(1.0)
    if message is None or message.error():
        continue
    found = json.loads(message.value())
    if found["order_id"] in orders:
        scored[found["order_id"]] = found
consumer.close()

for key, order in orders.items():
    is_fraud = int(order["amount"] / order["items"] > 150)
    producer.produce("example.chargebacks", json.dumps({"order_id": key, "is_fraud": is_fraud}), key=key)
producer.flush()

for found in list(scored.values())[:3]:
    print(json.dumps(found))
right = sum(found["fraud"] == (found["amount"] / found["items"] > 150) for found in scored.values())
print(f"{len(scored)} of {ORDERS} orders scored, {right} rightly; {ORDERS} chargebacks reported")
if len(scored) < ORDERS:
    raise SystemExit("some orders have not been scored: skysail map check fraud")
