"""What queueing theory says of the simple cases: mean waits before service, in the unit of the service time."""

from __future__ import annotations

from math import factorial

from workers.simulation.errors import PlanError


def md1_wait(rate: float, service: float) -> float:
    """Return the mean wait where service always takes the same (Pollaczek 1930, Khinchine 1932).

    Args:
        rate: arrivals in a unit of time.
        service: time of one.

    Raises:
        PlanError: more arrive than can be served.
    """
    load = _load(rate, service, 1)
    return load * service / (2.0 * (1.0 - load))


def mm1_wait(rate: float, service: float) -> float:
    """Return the mean wait where service times are exponential."""
    load = _load(rate, service, 1)
    return load * service / (1.0 - load)


def mmk_wait(rate: float, service: float, servers: int) -> float:
    """Return the mean wait of one queue before several servers, service times exponential (Erlang 1917)."""
    load = _load(rate, service, servers)
    offered = load * servers
    last = offered**servers / factorial(servers) / (1.0 - load)
    waits = last / (sum(offered**n / factorial(n) for n in range(servers)) + last)
    return waits * service / (servers * (1.0 - load))


def batch_wait(rate: float, service: float, cap: int) -> float:
    """Return the mean wait where one server takes all that wait, at most `cap`, in one exponential time (Bailey 1954).

    That n wait while it is busy has the probability A * r**n. In (0, 1), r is the root of `rate * service * (1 - r) =
    r - r**(cap + 1)`. The mean follows by Little's law.
    """
    offered = rate * service
    _load(rate, service, cap)
    low, high = 0.0, 1.0 - 1e-12
    for _ in range(200):
        middle = (low + high) / 2.0
        low, high = (middle, high) if offered * (1.0 - middle) > middle - middle ** (cap + 1) else (low, middle)
    share = 1.0 / (1.0 / offered + 1.0 / (1.0 - low))
    return share * low / (1.0 - low) ** 2 / rate


def _load(rate: float, service: float, servers: int) -> float:
    load = rate * service / servers
    if load >= 1.0:
        raise PlanError(f"more arrive than can be served: the load is {load:g}, it must be below 1")
    return load
