"""The scenarios of papers and of other systems, and those of Skysail's own makers."""

from load.research import many_models_page, steps_page
from load.research.account import page as account_page
from load.research.batching import (
    batching,
    cache,
    controllers,
    delayed,
    gpu,
    images,
    latecomer,
    lock,
    runtimes,
    straggler,
)
from load.research.clockwork import clockwork_page, hosts
from load.research.learning import (
    agreement,
    cascade_page,
    conformal_page,
    evaluation,
    figure8,
    linear,
    personal,
    policies,
    recall,
    specialists,
    spread,
)
from load.research.nexus import graph_page, nexus_page, prefix_page
from load.research.operation import promotion, seeds, simulated, site_page, turns
from load.research.paper import page as paper_page
from load.research.parm import hedge_page, parm_page, published
from load.research.peers import forest_page, trio_page
from load.research.peers import page as peers_page
from load.research.pretzel import pretzel_page
from load.research.recommend import laser_page, velox_page
from load.research.traces import azure, elb

SCENARIOS = (
    azure.SCENARIO,
    elb.SCENARIO,
    figure8.SCENARIO,
    personal.SCENARIO,
    agreement.SCENARIO,
    specialists.SCENARIO,
    linear.SCENARIO,
    hedge_page.SCENARIO,
    graph_page.SCENARIO,
    straggler.SCENARIO,
    latecomer.SCENARIO,
    batching.SCENARIO,
    controllers.SCENARIO,
    delayed.SCENARIO,
    lock.SCENARIO,
    runtimes.SCENARIO,
    gpu.SCENARIO,
    published.SCENARIO,
    parm_page.SCENARIO,
    cache.SCENARIO,
    recall.SCENARIO,
    images.SCENARIO,
    promotion.SCENARIO,
    site_page.SCENARIO,
    cascade_page.SCENARIO,
    conformal_page.SCENARIO,
    nexus_page.SCENARIO,
    seeds.SCENARIO,
    clockwork_page.SCENARIO,
    simulated.SCENARIO,
    policies.SCENARIO,
    hosts.SCENARIO,
    prefix_page.SCENARIO,
    pretzel_page.SCENARIO,
    velox_page.SCENARIO,
    laser_page.SCENARIO,
    turns.SCENARIO,
    spread.SCENARIO,
    evaluation.SCENARIO,
    account_page.SCENARIO,
    peers_page.SCENARIO,
    forest_page.SCENARIO,
    trio_page.SCENARIO,
    paper_page.SCENARIO,
)
# Pages of several scenarios.
COLLECTED = (many_models_page.PAGE, steps_page.PAGE)
