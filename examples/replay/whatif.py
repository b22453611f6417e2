"""Asks, records, and answers: was it as it was? What if another policy had decided? What would it have cost?"""

import os
import shutil
import subprocess

from sklearn.datasets import load_digits

from skysail import SyncClient

BOOTSTRAP = os.environ.get("SKYSAIL_KAFKA__BOOTSTRAP", "127.0.0.1:9092")
PREFIX = os.environ.get("SKYSAIL_PREFIX", "example-replay")
QUERIES = int(os.environ.get("QUERIES", "400"))
X, y = load_digits(return_X_y=True)


def skysail(*words: str) -> None:
    """Run a command as in a terminal; ends this program if it fails."""
    print("$ skysail", *words, flush=True)
    subprocess.run(["skysail", *words], check=True)


with SyncClient(BOOTSTRAP, PREFIX) as client:
    for number in range(QUERIES):
        row = 900 + number % 897
        prediction = client.predict("digits", (X[row] / 16).astype("float32"))
        client.feedback(prediction, label=int(y[row]))

shutil.rmtree("trace", ignore_errors=True)
skysail("record", "trace")
skysail("trace", "show", "trace")
skysail("replay", "trace", "--offline")
skysail("replay", "trace", "--offline", "--set", "policy=thompson", "--app", "digits")
skysail("evaluate", "trace", "--policy", "always:linear", "--window", "0.5", "--force")
