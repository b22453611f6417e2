"""How large a record may be. The settings read this, so it loads nothing."""

from __future__ import annotations

from typing import Final

# What a record may hold unless the deployment says otherwise. A query of 64 float32 takes 0.3 KB, and a megapixel image
# of uint8 does not fit. Half of Kafka's default message.max.bytes, so that a dead letter's headers still fit.
MAX_BYTES: Final = 524_288
# What a deployment may ask for: half of the 16 MiB that a batch may be for its readers. Still larger inputs belong in a
# store, with their address in the query.
MOST_BYTES: Final = 8 << 20
# Of the largest record: room for its key, headers and framing.
ROOM_BYTES: Final = 16 * 1024
