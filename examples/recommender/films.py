"""What a film is like, as the model computes it: action, comedy, romance, documentary."""

import numpy as np

FILMS = {
    "alien": [0.9, 0.0, 0.1, 0.0],
    "heat": [1.0, 0.0, 0.2, 0.0],
    "airplane": [0.2, 1.0, 0.1, 0.0],
    "clue": [0.1, 0.9, 0.0, 0.0],
    "casablanca": [0.1, 0.1, 1.0, 0.0],
    "amelie": [0.0, 0.4, 0.9, 0.0],
    "senna": [0.4, 0.0, 0.0, 1.0],
    "koyaanisqatsi": [0.0, 0.0, 0.1, 1.0],
}
NAMES = list(FILMS)


def features(rows):
    """Return the features of films by their numbers: (n, 1) to (n, 4)."""
    return np.array([FILMS[NAMES[int(row[0])]] for row in rows])
