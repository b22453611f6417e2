"""The scenarios of papers and of other systems, and those of Skysail's own makers."""

from load.research import many_models, steps
from load.research.account import account_tables
from load.research.batching import (
    batching,
    cache,
    controllers,
    delayed,
    gpu,
    images,
    latecomer,
    lock,
    replicas,
    runtimes,
    straggler,
)
from load.research.clockwork import clockwork_tables, hosts
from load.research.gateway import gateway
from load.research.learning import (
    agreement,
    cascade_tables,
    conformal,
    evaluation,
    figure8,
    judged,
    linear,
    personal,
    policies,
    recall,
    specialists,
    spread,
)
from load.research.nexus import graph, nexus, prefix
from load.research.operation import promotion, seeds, simulated, site_tables, turns
from load.research.paper import paper_words
from load.research.parm import hedge, parm_tables, published
from load.research.peers import forest_tables, peers_tables, trio
from load.research.pretzel import pretzel
from load.research.recommend import laser_tables, velox_tables
from load.research.topics import scenario as topics
from load.research.traces import azure, elb

SCENARIOS = (
    azure.SCENARIO,
    elb.SCENARIO,
    figure8.SCENARIO,
    personal.SCENARIO,
    agreement.SCENARIO,
    specialists.SCENARIO,
    linear.SCENARIO,
    hedge.SCENARIO,
    graph.SCENARIO,
    straggler.SCENARIO,
    latecomer.SCENARIO,
    batching.SCENARIO,
    controllers.SCENARIO,
    delayed.SCENARIO,
    lock.SCENARIO,
    replicas.SCENARIO,
    runtimes.SCENARIO,
    gpu.SCENARIO,
    published.SCENARIO,
    parm_tables.SCENARIO,
    cache.SCENARIO,
    recall.SCENARIO,
    images.SCENARIO,
    promotion.SCENARIO,
    site_tables.SCENARIO,
    cascade_tables.SCENARIO,
    conformal.SCENARIO,
    nexus.SCENARIO,
    gateway.SCENARIO,
    seeds.SCENARIO,
    clockwork_tables.SCENARIO,
    simulated.SCENARIO,
    policies.SCENARIO,
    hosts.SCENARIO,
    prefix.SCENARIO,
    pretzel.SCENARIO,
    velox_tables.SCENARIO,
    laser_tables.SCENARIO,
    turns.SCENARIO,
    spread.SCENARIO,
    evaluation.SCENARIO,
    judged.SCENARIO,
    account_tables.SCENARIO,
    peers_tables.SCENARIO,
    forest_tables.SCENARIO,
    topics.SCENARIO,
    trio.SCENARIO,
    paper_words.SCENARIO,
)
# Pages of several scenarios.
COLLECTED = (many_models.PAGE, steps.PAGE)
