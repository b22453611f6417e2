"""Shows two users three films at a time; what they click teaches what to show them next."""

import os
import random
from collections import Counter

from films import FILMS

from skysail import SyncClient

BOOTSTRAP = os.environ.get("SKYSAIL_KAFKA__BOOTSTRAP", "127.0.0.1:9092")
PREFIX = os.environ.get("SKYSAIL_PREFIX", "example-recommender")
ROUNDS = int(os.environ.get("ROUNDS", "120"))
LIKES = {"ann": "action and documentaries", "bob": "comedies"}


def clicks(user: str, film: str) -> bool:
    """Tell whether a user clicks: this is what nobody but the user knows."""
    action, comedy, _, documentary = FILMS[film]
    return (action + documentary if user == "ann" else comedy) > 0.6


draw = random.Random(1)
shown = {user: [] for user in LIKES}
with SyncClient(BOOTSTRAP, PREFIX) as client:
    client.set_features("items", FILMS)
    for _ in range(ROUNDS):
        for user in LIKES:
            shelf = draw.sample(sorted(FILMS), 6)
            best = client.predict("shelf", [0], context=user, candidates=shelf, top=3, slo_ms=1_000)
            if not best.best:
                continue  # a default answer: nothing was ranked in time
            first = best.best[0]
            shown[user].append(first)
            client.feedback(best, label=float(clicks(user, first)))

share = {}
for user, taste in LIKES.items():
    early, late = shown[user][: ROUNDS // 4], shown[user][-(ROUNDS // 4) :]
    share[user] = [sum(clicks(user, film) for film in part) / max(1, len(part)) for part in (early, late)]
    print(f"{user} likes {taste}: clicked {share[user][0]:.0%} at first, {share[user][1]:.0%} at last")
    print("   shown at last:", ", ".join(film for film, _ in Counter(late).most_common(3)))
if any(not shown[user] for user in LIKES):
    raise SystemExit("nothing was ranked: skysail doctor")
