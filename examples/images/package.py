"""Packages the model, whose rows are addresses, and makes some images to ask about."""

from pathlib import Path

import numpy as np

from skysail import package_function

FOLDER = Path("/tmp/skysail-images")


def image(light: int) -> bytes:
    """Return a grey image of 640 x 480 pixels with some noise: 300 KB."""
    grain = np.random.default_rng(light).integers(-20, 20, (480, 640))
    return b"P5 640 480 255\n" + (light + grain).astype(np.uint8).tobytes()


FOLDER.mkdir(exist_ok=True)
for name, light in {"night": 40, "dusk": 90, "noon": 200, "snow": 230}.items():
    (FOLDER / f"{name}.pgm").write_bytes(image(light))
print(package_function("bright:classify", "models/bright", "bright", "1", [image(100)], by_reference=True))
