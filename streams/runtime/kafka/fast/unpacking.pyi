from collections.abc import Callable

from streams.operators.contract import Record

def records(
    batch: bytes,
    checksum: Callable[[memoryview], int],
    topic: str,
    partition: int,
    start: int,
    record: type[Record],
) -> tuple[list[Record], int]: ...
