"""How a host follows the plan of its pool: from when on, and what it makes of records that are none."""

from __future__ import annotations

from schemas import topics
from schemas.codec import Codec
from schemas.records import Place, Plan
from streams.operators.contract import LogMessage, Record
from workers.kernel.host.plan import MOST_US, PlanFollower

CODEC = Codec()
S = 1_000_000


def _plan(from_us: int = 0, **hosts: str) -> Plan:
    """Return a plan that gives each host the models of one letter."""
    places = [Place(host, model, (0,), 5.0, 1, 1) for host, models in hosts.items() for model in models]
    return Plan("small", 1, 1, 1, tuple(hosts), tuple(places), "a test", from_us=from_us)


def _record(value: bytes | None, key: bytes = b"small") -> Record:
    return Record(topics.PLAN, 0, 0, 0, key, value)


def _follower(*plans: Plan, now_us: int = 0) -> PlanFollower:
    follower = PlanFollower(CODEC, "small", "one")
    for plan in plans:
        follower.on_record(_record(CODEC.encode(plan)), now_us)
    return follower


def test_the_first_plan_is_followed_at_once() -> None:
    """There is nothing else to go by."""
    follower = _follower(_plan(5 * S, one="a", two="b"))
    assert follower.own == {"a": 5.0}
    assert follower.due_us is None


def test_the_next_plan_is_followed_when_it_says() -> None:
    """Until then the host knows what comes."""
    follower = _follower(_plan(one="a", two="bc"), _plan(5 * S, one="ab", two="c"), now_us=S)
    before = follower.homes
    assert (follower.own, follower.expected, follower.due_us) == ({"a": 5.0}, {"a", "b"}, 5 * S)
    follower.advance(4 * S)
    assert follower.homes is before
    follower.advance(5 * S)
    assert (follower.own.keys(), follower.expected, follower.due_us) == ({"a", "b"}, {"a", "b"}, None)
    assert follower.homes is not before


def test_a_plan_that_assigns_the_same_changes_no_homes() -> None:
    """So nobody joins anew for it; one that was to come is dropped."""
    first, second = _plan(one="a", two="b"), _plan(9 * S, one="ab")
    follower = _follower(first, second)
    before = follower.homes
    follower.on_record(_record(CODEC.encode(first._replace(time_us=2, from_us=8 * S))), S)
    assert follower.homes is before
    assert (follower.plan is not None, follower.due_us) == (True, None)


def test_no_plan_is_put_off_for_long() -> None:
    """Whatever it says, as clocks may be wrong."""
    follower = _follower(_plan(one="a"), _plan(10_000 * S, two="a"), now_us=S)
    assert follower.due_us == S + MOST_US


def test_what_is_no_plan_of_the_pool_is_skipped() -> None:
    """Another pool's says nothing here; of one that cannot be read the log tells."""
    follower = _follower(_plan(one="a"))
    assert follower.on_record(_record(CODEC.encode(_plan(one="b")), b"large"), 0) == []
    (said,) = follower.on_record(_record(b"nonsense"), 0)
    assert isinstance(said, LogMessage)
    assert follower.own == {"a": 5.0}


def test_without_a_plan_partitions_are_spread_evenly() -> None:
    """A plan that was removed gives nobody anything."""
    follower = _follower(_plan(one="a"))
    follower.on_record(_record(None), 0)
    assert (follower.plan, follower.homes, follower.own) == (None, None, {})
