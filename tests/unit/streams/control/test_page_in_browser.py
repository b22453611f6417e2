"""The page as people meet it: in a browser, wide and narrow, light and dark, with a mouse, keys or a screen reader."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import pytest

from schemas.records import Outcome
from streams.control.web.commands import acting
from streams.gateway.protocol.values import RequestRefusedError
from streams.story import differing
from streams.story.differing import DifferingContext, DifferingContexts
from streams.story.words import document
from tests.browser import CHROMIUM, browser
from tests.loops import Loop, digits
from tests.pages import TOKENS, NotedCommands, busy_state, empty_state, now_us, page, served
from tests.stories import known, told

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from streams.control.state import ControlState
    from tests.browser import Tab

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
    pytest.mark.timeout(240),
]
QUERY = "01a21ccc8db87de5a9cc77e3f8b7722b"
LETTER = {
    "place": "feedback/0/7", "cause": "unmatched", "message": "no prediction has this id", "written": "today",
    "from": {"topic": "feedback", "partition": 0, "offset": 7}, "bytes": 12, "sent_again": 0,
    "value": {"query_id": QUERY},
}  # fmt: skip
GROUP = {
    "topic": "feedback", "cause": "unmatched", "application": "fraud", "letters": 30, "redriven": 0, "bytes": 360,
    "oldest": "yesterday", "newest": "today",
}  # fmt: skip


def asked(answer: object = 7) -> Loop:
    """Return a loop that has answered one query, whose models answer so."""
    models = {"good": lambda _: answer, "bad": lambda _: answer}
    loop = Loop(models, digits(slo_ms=100.0), has_workers=True)
    loop.query(QUERY, slo_ms=100.0)
    loop.driver.run(3.0)
    return loop


SAID = {
    "dlq list": json.dumps([GROUP]).encode(),
    "dlq show": json.dumps([LETTER]).encode(),
    "dlq purge": b'{"removed": 30, "dry_run": true, "before": "2026-11-27T12:00:00.000001+00:00"}',
    "dlq redrive": b'{"dry_run": false, "sent": {"feedback": 30}, "refused": {}}',
    "story": json.dumps(document(told(asked(), QUERY))).encode(),
}
CHECKS = (Path(__file__).parents[3] / "page_checks.js").read_text(encoding="utf-8")


@asynccontextmanager
async def seen(
    folder: Path, state: ControlState, end_us: int, *, dark: bool = False, run: NotedCommands | None = None
) -> AsyncIterator[tuple[Tab, str]]:
    """Show the page of a state; yields the tab, which is there already, and the address."""
    application = page(state, run=run, tokens=TOKENS if run else "", clock=lambda: end_us)
    async with served(application) as server, browser(folder, dark=dark) as tab:
        address = f"http://127.0.0.1:{server.port}"
        await tab.open(f"{address}/")
        await tab.until("document.getElementById('when').textContent.includes(':')")
        yield tab, address


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_everything_fits_is_named_and_can_be_read(tmp_path: Path, *, dark: bool) -> None:
    """At 1,280 and at 390 pixels; the scripts complain of nothing."""
    end = now_us()
    async with seen(tmp_path, busy_state(end), end, dark=dark) as (tab, _):
        for width in (1280, 390):
            await tab.resize(width)
            await tab.until("document.querySelectorAll('#charts figure canvas').length >= 4")
            for check in ("cut", "unnamed", "pale"):
                assert await tab.js(f"(() => {{ {CHECKS}; return {check}(); }})()") == [], (check, width)
        assert tab.complaints == []


async def test_the_dot_the_title_and_the_tab_are_red_when_something_is(tmp_path: Path) -> None:
    """A screen reader is told, too; with nothing wrong they are not red."""
    end, look = now_us(), "[document.getElementById('state').className, document.getElementById('said').textContent]"
    async with seen(tmp_path, busy_state(end), end) as (tab, _):
        await tab.until("document.getElementById('state').className === 'dot bad'")
        assert (await tab.js("document.title")).startswith("(")
        assert "b9293f" in await tab.js("document.querySelector('link[rel=icon]').href")
        assert "wrong" in (await tab.js(look))[1]
    (tmp_path / "well").mkdir()
    async with seen(tmp_path / "well", empty_state(end), end) as (tab, _):
        await tab.until("document.getElementById('state').className !== 'dot'")
        assert "bad" not in (await tab.js(look))[0]


async def test_keys_alone_reach_everything_and_the_first_one_skips_to_what_is_wrong(tmp_path: Path) -> None:
    """The focus is seen, goes from above to below, and is not lost when the figures come anew."""
    end = now_us()
    async with seen(tmp_path, busy_state(end), end) as (tab, _):
        await tab.until("document.querySelector('#processes button') !== null")
        reached, heights = [], []
        for _step in range(80):
            await tab.press("Tab", 9)
            is_body, name, top, outline = await tab.js(
                "(one => [one === document.body, one.id || one.className || one.textContent,"
                " one.getBoundingClientRect().top + scrollY, getComputedStyle(one).outlineStyle]"
                ")(document.activeElement)"
            )
            if is_body and reached:
                break
            if not is_body:
                assert outline != "none", name
                reached.append(name)
                heights.append(top)
        assert reached[0] == "skip"
        assert {"filter", "subject", "ask-id", "token"} <= {*reached}
        assert all(after >= before - 60 for before, after in pairwise(heights) if after > 100), reached


async def test_a_day_is_charted_with_what_was_done_in_it(tmp_path: Path) -> None:
    """The switch of a model an hour ago and the restart five hours ago are marked."""
    end = now_us()
    async with seen(tmp_path, busy_state(end), end) as (tab, _):
        await tab.until("document.querySelector('#spans input[value=\"1440\"]') !== null")
        await tab.js("document.querySelector('#spans input[value=\"1440\"]').click()")
        said = await tab.until(
            "(text => text.includes('forest 3 serves') && text)(document.getElementById('charts').textContent)"
        )
        assert "worker.forest@1 started again" in said
        titles = await tab.js("[...document.querySelectorAll('#charts figcaption')].map(one => one.textContent)")
        assert any("weight" in title.lower() for title in titles), titles
        assert any("ms" in title.lower() or "time" in title.lower() for title in titles), titles


async def test_one_click_leads_from_a_dead_letter_to_its_query_and_a_token_sends_it_again(tmp_path: Path) -> None:
    """Without the token there is nothing to click that changes anything."""
    end, run = now_us(), NotedCommands(SAID)
    async with seen(tmp_path, busy_state(end), end, run=run) as (tab, address):
        await tab.until("document.querySelector('#letters button') !== null")
        assert await tab.js("document.querySelectorAll('.act').length") == 0
        await tab.js("confirm = () => true")
        await _give_token(tab, "actor-0123456789")
        await tab.js("[...document.querySelectorAll('#letters button')].at(-1).click()")
        await tab.until("document.querySelector('#lying button.act') !== null")
        await tab.js("document.querySelector('#lying button.act').click()")
        await tab.until("document.getElementById('lying').textContent.includes('30 feedback')")
        assert run.ran[-1][:2] == ("dlq", "redrive")
        assert "--topic=feedback" in run.ran[-1]
        await tab.js("document.querySelector('#letters [data-key^=show]').click()")
        await tab.until("document.querySelector('#lying .letter button') !== null")
        await tab.js("document.querySelector('#lying .letter button').click()")
        await tab.until("document.getElementById('story').textContent.includes('due after 100 ms')")
        assert run.ran[-1] == ("story", "--json", "--", QUERY)
        assert await tab.js("location.pathname") == f"/story/{QUERY}"
        await _refuses_strangers(address, run)


async def test_letters_are_removed_once_it_has_been_said_how_many_go(tmp_path: Path) -> None:
    """What comes while somebody thinks about it stays; without a token there is no such button."""
    end, run = now_us(), NotedCommands(SAID)
    async with seen(tmp_path, busy_state(end), end, run=run) as (tab, _):
        await _give_token(tab, "actor-0123456789")
        await tab.until("document.querySelector('#letters button') !== null")
        await tab.js("[...document.querySelectorAll('#letters button')].at(-1).click()")
        await tab.until("document.querySelector('#lying [data-key^=purge]') !== null")
        await tab.js("document.querySelector('#lying [data-key^=purge]').click()")
        await tab.until("document.getElementById('lying').textContent.includes('30 letters of feedback')")
        assert {"--dry-run", "--topic=feedback"} <= {*run.ran[-1]}
        assert "--yes" not in run.ran[-1]
        await tab.js("document.querySelector('#lying button.act').click()")
        await tab.until("document.getElementById('lying').textContent.includes('30 letters of feedback removed')")
    assert {"--yes", "--topic=feedback"} <= {*run.ran[-1]}
    assert run.ran[-1][-1] == "--before=2026-11-27T12:00:00.000001+00:00"


async def test_letters_of_own_topics_are_shown_from_where_they_lie(tmp_path: Path) -> None:
    """There is no topic of dead letters for each of them."""
    end, run = now_us(), NotedCommands(SAID)
    async with seen(tmp_path, busy_state(end), end, run=run) as (tab, _):
        await _give_token(tab, "reader-0123456789")
        await tab.until("document.querySelector('#letters [data-key^=\"show /orders\"]') !== null")
        await tab.js("document.querySelector('#letters [data-key^=\"show /orders\"]').click()")
        await tab.until("document.querySelector('#lying .letter') !== null")
    assert {"--topic=mapping", "--cause=unreadable"} <= {*run.ran[-1]}


async def test_a_click_tells_which_partition_is_stuck(tmp_path: Path) -> None:
    """The command is run that an operator would type."""
    row = {"role": "joiner", "topic": "feedback", "partition": 3, "at": 70, "end": 40_070, "unread": 40_000}
    end, run = now_us(), NotedCommands({"topics lag": json.dumps([row]).encode()})
    async with seen(tmp_path, busy_state(end), end, run=run) as (tab, _):
        await _give_token(tab, "reader-0123456789")
        await tab.js("document.querySelector('#processes [data-key=lag]').click()")
        await tab.until("document.getElementById('log').textContent.includes('40,000')")
    assert run.ran == [("topics", "lag", "--json")]


async def test_a_context_is_shown_with_its_state_and_its_last_answers(tmp_path: Path) -> None:
    """From there one click leads to a query's story."""
    said = {**known(asked()), "stored": {"policy": "exp3", "version": 1_234}}
    end, run = now_us(), NotedCommands({"story --json --application": json.dumps(said).encode(), **SAID})
    async with seen(tmp_path, busy_state(end), end, run=run) as (tab, _):
        await _give_token(tab, "reader-0123456789")
        await tab.js("document.getElementById('context-of').value = 'fraud'")
        await tab.js("document.getElementById('context').value = 'ann'")
        await tab.js("document.getElementById('ask-context').requestSubmit()")
        await tab.until("document.getElementById('story').textContent.includes('1,234')")
        assert run.ran[-1] == ("story", "--json", "--application=fraud", "--context=ann")
        await tab.js("document.querySelector('#story button').click()")
        await tab.until(f"location.pathname === '/story/{QUERY}'")


async def test_an_alert_leads_to_the_answers_that_show_it(tmp_path: Path) -> None:
    """One click: the last answers of its application, each with its story."""
    said = json.dumps(known(asked(Outcome.INVALID))).encode()
    end, run = now_us(), NotedCommands({"story --json --application": said, **SAID})
    async with seen(tmp_path, busy_state(end), end, run=run) as (tab, _):
        await _give_token(tab, "reader-0123456789")
        await tab.js("document.querySelector('#alerts [data-key^=\"answers fraud\"]').click()")
        await tab.until("document.getElementById('story').textContent.includes('default, invalid_input')")
        assert run.ran[-1] == ("story", "--json", "--application=fraud")
        await tab.js("document.querySelector('#story button').click()")
        await tab.until(f"location.pathname === '/story/{QUERY}'")


async def test_the_contexts_that_differ_most_lead_to_their_states(tmp_path: Path) -> None:
    """A click on one shows its state and its last answers."""
    ann = DifferingContext("ann", (0.1, 0.9), 0.81, 30, QUERY)
    found = differing.document(DifferingContexts("fraud", ("forest", "linear"), (0.9, 0.1), 21, (ann,)))
    said = {"app contexts": json.dumps(found).encode(), "story": json.dumps(known(asked())).encode()}
    end, run = now_us(), NotedCommands(said)
    async with seen(tmp_path, busy_state(end), end, run=run) as (tab, _):
        await _give_token(tab, "reader-0123456789")
        await tab.js("document.getElementById('context-of').value = 'fraud'")
        await tab.js("document.getElementById('differing').click()")
        await tab.until("document.getElementById('story').textContent.includes('21 contexts')")
        assert run.ran[-1] == ("app", "contexts", "--json", "--", "fraud")
        await tab.js("document.querySelector('#story button').click()")
        await tab.until("document.getElementById('story').textContent.includes('Its last answers')")
    assert run.ran[-1] == ("story", "--json", "--application=fraud", "--context=ann")


@pytest.mark.parametrize("application", [None, "fraud"])
async def test_what_is_sent_again_is_what_the_row_is_about(tmp_path: Path, application: str | None) -> None:
    """Most letters tell of no application: those alone are meant then, and a dry run sends nothing."""
    end, run = (
        now_us(),
        NotedCommands({**SAID, "dlq list": json.dumps([{**GROUP, "application": application}]).encode()}),
    )
    async with seen(tmp_path, busy_state(end), end, run=run) as (tab, _):
        await tab.js("confirm = () => true")
        await _give_token(tab, "actor-0123456789")
        await tab.until("document.querySelector('#letters button') !== null")
        await tab.js("[...document.querySelectorAll('#letters button')].at(-1).click()")
        await tab.until("document.querySelector('#lying button.act') !== null")
        await tab.js("document.querySelector('#lying [data-key^=dry]').click()")
        await tab.until("document.getElementById('lying').textContent.includes('30 feedback')")
    assert f"--application={application or ''}" in run.ran[-1]
    assert "--dry-run" in run.ran[-1]


@pytest.mark.parametrize("wrong", [{"dry_run": "true"}, {"dry_run": 1}, {"topic": 7}])
def test_an_action_is_taken_as_it_is_meant_or_not_at_all(wrong: dict[str, object]) -> None:
    """A dry run that is taken for a real one would send."""
    with pytest.raises(RequestRefusedError, match=r"true or false|a text"):
        acting({"action": "redrive", "topic": "feedback", **wrong})


async def _give_token(tab: Tab, token: str) -> None:
    await tab.js(f"document.getElementById('token').value = '{token}'")
    await tab.js("document.getElementById('token-form').requestSubmit()")
    await tab.until("!document.getElementById('act').hidden")


async def _refuses_strangers(address: str, run: NotedCommands) -> None:
    """Another page with the right token, and the page with a token that only reads, change nothing."""
    async with aiohttp.ClientSession(address, headers={"authorization": "Bearer reader-0123456789"}) as session:
        for headers in ({"sec-fetch-site": "cross-site"}, {"origin": "http://elsewhere.example"}):
            async with session.get("/api/story?id=x", headers=headers) as reply:
                assert reply.status == 403  # a picture of another page would start a command each
    before, wish = len(run.ran), {"action": "promote", "model": "forest@2"}
    cases = [
        ("actor", {"origin": "http://elsewhere.example"}),
        ("actor", {"sec-fetch-site": "cross-site"}),
        ("reader", {}),
    ]
    async with aiohttp.ClientSession(address) as session:
        for who, more in cases:
            headers = {"authorization": f"Bearer {who}-0123456789", **more}
            async with session.post("/api/action", json=wish, headers=headers) as reply:
                assert reply.status == 403, who
        async with session.post("/api/action", json=wish) as reply:
            assert reply.status == 401
        assert len(run.ran) == before
        async with session.post(
            "/api/action", json=wish, headers={"authorization": "Bearer actor-0123456789"}
        ) as reply:
            assert reply.status == 200
    assert run.ran[-1] == ("model", "promote", "--json", "--", "forest@2")
