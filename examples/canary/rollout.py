"""Half of the queries go to version 2, until the feedback shows that it is better; then it serves."""

import os
import subprocess
from collections import Counter

from sklearn.datasets import load_digits

from skysail import SyncClient

BOOTSTRAP = os.environ.get("SKYSAIL_KAFKA__BOOTSTRAP", "127.0.0.1:9092")
PREFIX = os.environ.get("SKYSAIL_PREFIX", "example-canary")
ROUNDS = 20  # of a hundred queries, at most
ENOUGH = 70  # answers of version 2, before it is worth asking
X, y = load_digits(return_X_y=True)


def skysail(*words: str) -> bool:
    """Run a command as in a terminal; tells whether it did what it was to do."""
    print("$ skysail", *words, flush=True)
    return subprocess.run(["skysail", *words], check=False).returncode == 0


def traffic(client: SyncClient, begin: int) -> Counter:
    """Ask about a hundred images, say what each was, and count which version answered how well."""
    counts = Counter()
    for number in range(begin, begin + 100):
        row = 1_000 + number % 797
        prediction = client.predict("digits", X[row].astype("float32"))
        client.feedback(prediction, label=int(y[row]))
        for output in prediction.outputs:
            is_right = "right" if output.answer == y[row] else "wrong"
            counts[f"version {output.version} {is_right}"] += 1
    print("  ", dict(sorted(counts.items())), flush=True)
    return counts


with SyncClient(BOOTSTRAP, PREFIX) as client:
    traffic(client, 0)
    skysail("model", "add", "models/digits-2", "--share", "0.5")
    compared = Counter()
    for number in range(1, ROUNDS):
        compared += traffic(client, 100 * number)
        is_known = compared["version 2 right"] + compared["version 2 wrong"] > ENOUGH
        if is_known and skysail("model", "promote", "digits@2"):
            break
    else:
        raise SystemExit("version 2 was not shown to be better: skysail model show digits")
    served = traffic(client, 0)
if not any(told.startswith("version 2") for told in served):
    raise SystemExit("version 2 does not serve: skysail model show digits")
