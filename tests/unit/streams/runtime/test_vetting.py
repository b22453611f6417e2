"""A name of an application is tried in a process beside: what is no policy is never imported by those who serve."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from policies import outside, own_loss, registry
from policies.errors import PolicyError
from policies.loss_rules import fault
from schemas import topics
from schemas.codec import Codec
from schemas.errors import DecodeError
from schemas.records import Application, Candidate
from streams.operators.configuration import Configuration
from streams.operators.contract import Record
from streams.runtime.role.follower import Follower
from streams.runtime.vetting import preparing, vetted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GOOD = """
from policies.single import Single

class Mine(Single):
    pass

class Other:
    pass
"""
CODEC = Codec()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder of modules that can be imported; what was known of policies is forgotten."""
    monkeypatch.syspath_prepend(str(tmp_path))
    outside._class.cache_clear()
    yield tmp_path
    outside._class.cache_clear()
    outside._known.clear()
    outside._refused.clear()
    own_loss._imported.cache_clear()
    own_loss._known.clear()
    own_loss._refused.clear()
    for name in [name for name in sys.modules if name.startswith("vetted_")]:
        del sys.modules[name]


def module(folder: Path, name: str, text: str) -> str:
    """Write a module; return its name."""
    (folder / f"{name}.py").write_text(text)
    return name


def record(policy: str, apprentice: str = "") -> Record:
    """Return an application that names a policy."""
    application = replace(Application("app", models=("a",)), policy=policy, apprentice=apprentice)
    return Record(topics.APPLICATIONS, 0, 0, 0, b"app", CODEC.encode(application))


async def test_a_policy_is_imported_and_what_is_none_is_not(folder: Path) -> None:
    """What was refused costs nothing more: naming it again in a decision imports nothing."""
    name, other = module(folder, "vetted_good", GOOD), module(folder, "vetted_heavy", "class Tensor: pass")
    await vetted(f"{name}:Mine")
    assert outside.is_known(f"{name}:Mine")
    for refused in (f"{other}:Tensor", f"{other}:nothing"):
        await vetted(refused)
        with pytest.raises(PolicyError):
            registry.create(refused)
    assert other not in sys.modules


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import time; time.sleep(600)", "not imported within"),
        ("import os; os._exit(0)", "ends the process"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "ends the process"),
        ("print('\"\"')", "cannot be imported"),
        ("raise SystemExit", "cannot be imported"),
        ("def f(): f()\nf()", "cannot be imported"),
    ],
)
async def test_whatever_an_import_does_happens_beside(folder: Path, text: str, why: str) -> None:
    """It hangs, ends its process, prints what a policy's child prints, or raises."""
    name = module(folder, "vetted_bad", text)
    await vetted(f"{name}:Mine", patience_s=2 if "sleep" in text else 60)
    with pytest.raises(PolicyError, match=why):
        registry.create(f"{name}:Mine")
    assert name not in sys.modules


async def test_it_can_be_named_again_once_it_is_mended(folder: Path) -> None:
    """The next record that names it has it tried anew."""
    name = module(folder, "vetted_late", "")
    await preparing(CODEC)([record(f"{name}:Mine")])
    with pytest.raises(PolicyError, match="cannot be imported"):
        registry.create(f"{name}:Mine")
    module(folder, name, GOOD)
    await preparing(CODEC)([record(f"{name}:Mine")])
    assert registry.create(f"{name}:Mine").init(1) == ()


async def test_an_apprentice_is_tried_too_and_what_nobody_imports_is_not(folder: Path) -> None:
    """Records without an application are the kernel's to refuse."""
    name = module(folder, "vetted_apprentice", GOOD)
    odd = Record(topics.APPLICATIONS, 0, 0, 0, b"app", b"?")
    gone, models = odd._replace(value=None), odd._replace(topic=topics.MODELS)
    await preparing(CODEC)([odd, gone, models, record("exp3", apprentice=f"{name}:Mine()")])
    assert outside.is_known(f"{name}:Mine")


async def test_what_a_candidate_names_is_tried_before_it_is_wished_for(folder: Path) -> None:
    """Whoever carries candidates on serves the page meanwhile; a version's name is none of a policy."""
    name, other = module(folder, "vetted_wished", GOOD), module(folder, "vetted_vast", "class Tensor: pass")
    wishes = [
        Record(topics.CANDIDATES, 0, number, 0, f"{kind}/app".encode(), CODEC.encode(plan))
        for number, (kind, plan) in enumerate(
            (kind, Candidate(kind, "app", candidate, "exp3()", 0, (0.0, 1.0)))
            for kind, candidate in (("policy", f"{name}:Mine()"), ("policy", f"{other}:Tensor()"), ("version", "a:b"))
        )
    ]
    await preparing(CODEC)(wishes)
    assert outside.is_known(f"{name}:Mine")
    assert [*outside._refused] == [f"{other}:Tensor"]
    assert other not in sys.modules


@pytest.mark.parametrize(
    "name",
    ["deploy.cli.__main__:X", "deploy.cli:main", "load.hostile.arena:Arena", "streams.control.app:X", "json.tool:main"],
)
async def test_programs_and_parts_of_ours_are_no_policies(name: str) -> None:
    """Nor is a program of anybody's."""
    await vetted(name)
    with pytest.raises(PolicyError, match=r"name your own module|standard library"):
        registry.create(name)


def test_the_program_of_a_package_is_never_run(folder: Path) -> None:
    """`package.__main__` does something when it is imported."""
    (folder / "vetted_package").mkdir()
    (folder / "vetted_package/__init__.py").touch()
    (folder / "vetted_package/__main__.py").write_text("raise AssertionError('it ran')")
    with pytest.raises(PolicyError, match="is a program"):
        registry.create("vetted_package.__main__:X")


async def test_where_nothing_is_allowed_nothing_is_tried(folder: Path) -> None:
    """An empty list is none; the words name the setting."""
    name = module(folder, "vetted_none", "raise AssertionError")
    outside.allow(())
    await vetted(f"{name}:Mine")
    with pytest.raises(PolicyError, match=f"add {name} to policy_code"):
        registry.create(f"{name}:Mine")


async def test_a_loss_of_ones_own_is_tried_like_a_policy(folder: Path) -> None:
    """Which ends its process is refused, by every role that follows applications, and never imported here."""
    good = module(folder, "vetted_loss", "def cost(label, answer): return 0.5")
    bad = module(folder, "vetted_deadly", "import os; os._exit(0)")
    named = [CODEC.encode(Application("app", ("a",), loss=f"{name}:cost")) for name in (good, bad)]
    records = [Record(topics.APPLICATIONS, 0, 0, 0, b"app", value) for value in named]
    await preparing(CODEC)(records)
    assert own_loss.is_known(f"{good}:cost")
    assert (fault(f"{good}:cost"), bad in sys.modules) == ("", False)
    configuration = Configuration(CODEC)
    configuration.on_record(records[0])
    with pytest.raises(DecodeError, match="ends the process"):
        configuration.on_record(records[1])
    assert configuration.applications["app"].application.loss == f"{good}:cost"


async def test_a_loss_is_tried_though_what_stands_beside_it_cannot_be_read(folder: Path) -> None:
    """Who takes the record would else import it where queries are served."""
    path = f"{module(folder, 'vetted_beside', 'def cost(label, answer): return 0.0')}:cost"
    given = Application("digits", ("a",), "single", loss=path, apprentice="nonsense((")
    record = Record(topics.APPLICATIONS, 0, 0, 0, b"digits", CODEC.encode(given))
    await preparing(CODEC)([record])
    assert own_loss.is_known(path)


async def test_where_no_code_is_allowed_no_loss_is_imported(folder: Path) -> None:
    """The setting is that of policies."""
    name = module(folder, "vetted_not_allowed", "raise AssertionError")
    outside.allow(())
    await vetted(f"{name}:cost", what="loss")
    assert f"add {name} to policy_code" in fault(f"{name}:cost")
    assert name not in sys.modules


class _Broadcast:
    """Brings one record, then nothing."""

    caught_up = True

    def __init__(self, one: Record) -> None:
        self.records = [one]

    async def start(self) -> None:
        """Be there."""

    async def poll(self, _max_ms: int) -> list[Record]:
        """Return what is left."""
        if not self.records:
            await asyncio.Event().wait()
        return [self.records.pop()]


async def test_nobody_waits_for_it_but_the_record_itself() -> None:
    """A role goes on meanwhile; its kernel sees the record once its names are known."""
    given: list[list[Record]] = []
    may_go_on, begun = asyncio.Event(), asyncio.Event()

    async def prepare(_records: object) -> None:
        begun.set()
        await may_go_on.wait()

    follower = Follower(_Broadcast(record("x:Y")), given.append, prepare)  # type: ignore[arg-type]
    task = asyncio.create_task(follower.run())
    await begun.wait()
    assert given == []
    assert not follower.caught_up.is_set()
    may_go_on.set()
    await follower.caught_up.wait()
    assert len(given) == 1
    task.cancel()
