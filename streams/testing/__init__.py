"""Tests without Kafka, Redis and waiting. Public, for your own tests too.

driver       the operators of a topology, in virtual time, with scripted faults: no runtime, no event loop
events       what is still to happen, in order of time: the one queue of the driver and of every simulation
faults       what goes wrong in the driver, as values, and what it happens to
models       what operators ask models in the driver: scripted answers, service times and hangs
virtual      an event loop whose time jumps, and on which a process can stand still
broker       logs and consumer groups in memory; `weather` says which faults hold
consumers    the members of a group on such a broker; stores: Redis in memory
packing      draws which records come in whole batches
connections  a role's consumer, transport, follower, log positions and store on such a broker
validator    what must be true of every run
"""

from streams.testing.driver import START_US, Driver, Pace
from streams.testing.faults import Crash, Delay, Duplicate, Fault, Reorder, StoreDown, StoreLoss
from streams.testing.models import ModelBehaviour

__all__ = [
    "START_US",
    "Crash",
    "Delay",
    "Driver",
    "Duplicate",
    "Fault",
    "ModelBehaviour",
    "Pace",
    "Reorder",
    "StoreDown",
    "StoreLoss",
]
