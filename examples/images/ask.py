"""Asks about images by their addresses; one is not there, and its answer says so."""

import os

from skysail import SyncClient

BOOTSTRAP = os.environ.get("SKYSAIL_KAFKA__BOOTSTRAP", "127.0.0.1:9092")
PREFIX = os.environ.get("SKYSAIL_PREFIX", "example-images")

answers = {}
with SyncClient(BOOTSTRAP, PREFIX) as client:
    for name in ("night", "dusk", "noon", "snow", "lost"):
        prediction = client.predict("images", f"file:/tmp/skysail-images/{name}.pgm")
        answers[name] = prediction.answer
        print(f"{name}: {prediction.answer}  {prediction.message}")
if answers["night"] != "dark" or answers["snow"] != "light":
    raise SystemExit("the answers are not as they should be: skysail doctor")
