"""The scenarios that compare Skysail with other systems and with a paper, and the account of each microsecond."""

from load.research.account import page
from load.research.account import scenario as account
from load.research.paper import page as paper_page
from load.research.paper import run as paper
from load.research.peers import batching as batching_peers
from load.research.peers import forest, forest_page, trio, trio_page
from load.research.peers import page as peers_page
from load.research.peers import scenario as peers
from load.scenario import Scenario

SCENARIOS = (
    Scenario(
        account,
        "where each microsecond goes: CPU by role and step, messages and bytes a query, latency by leg",
        tables=page.tables,
        page=page.page,
    ),
    Scenario(
        peers,
        "Skysail beside hand-written loops and other systems: rate, goodput, latency, CPU time, memory",
        tables=peers_page.tables,
        page=peers_page.page,
        seconds=peers.SECONDS,
        parts=peers.PARTS,
        short=True,
    ),
    Scenario(
        forest,
        "a random forest, which needs batching: goodput within 20, 50 and 100 ms beside what one would use instead",
        tables=forest_page.tables,
        page=forest_page.page,
        seconds=forest.SECONDS,
        parts=batching_peers.NAMES,
        short=True,
    ),
    Scenario(
        trio,
        "one slow model among three: goodput with it and without it, beside those who run models in line",
        tables=trio_page.tables,
        page=trio_page.page,
        seconds=trio.SECONDS,
        parts=trio.NAMES,
        short=True,
    ),
    Scenario(
        paper,
        "Clipper's figures 3 to 10 and its feedback rate, in short, as plots on one page beside the published ones",
        page=paper_page.page,
        html="paper.html",
        parts=paper.NAMES,
        short=True,
    ),
)
