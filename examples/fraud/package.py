"""Packages two models of two numbers, and makes the three topics."""

import os

import numpy as np
from confluent_kafka.admin import AdminClient, NewTopic
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from skysail import package_sklearn

TOPICS = ("example.orders", "example.orders.scored", "example.chargebacks")
BOOTSTRAP = os.environ.get("SKYSAIL_KAFKA__BOOTSTRAP", "127.0.0.1:9092")

rng = np.random.default_rng(0)
X = np.column_stack([rng.gamma(2, 100, 2_000), rng.integers(1, 9, 2_000)]).astype("float32")  # amount, items
y = (X[:, 0] / X[:, 1] > 150).astype(int)  # dear single things
print(package_sklearn(LogisticRegression().fit(X, y), "models/linear", "linear", "1", X[:100]))
print(package_sklearn(DecisionTreeClassifier(max_depth=1).fit(X, y), "models/tree", "tree", "1", X[:100]))

admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
missing = [name for name in TOPICS if name not in admin.list_topics(timeout=10).topics]
for made in admin.create_topics([NewTopic(name, 3, 1) for name in missing]).values() if missing else ():
    made.result()
