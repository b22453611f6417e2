"""What a user of Azure Personalizer's client would write; `python personalizer.py URL SECONDS`."""

import sys
import time
import uuid

from azure.cognitiveservices.personalizer import PersonalizerClient
from azure.cognitiveservices.personalizer.models import RankableAction, RankRequest
from msrest.authentication import CognitiveServicesCredentials

client = PersonalizerClient(sys.argv[1], CognitiveServicesCredentials("0123456789abcdef"))
actions = [RankableAction(id=name, features=[{"kind": name}]) for name in ("right", "wrong")]
shown, end = [], time.monotonic() + float(sys.argv[2])
while shown[-40:].count("wrong") < 36:
    assert time.monotonic() < end, shown
    event = uuid.uuid4().hex
    ranked = client.rank(RankRequest(actions=actions, context_features=[{"day": "monday"}], event_id=event))
    assert ranked.event_id == event
    assert next(iter(ranked.ranking)).id == ranked.reward_action_id
    assert abs(sum(one.probability for one in ranked.ranking) - 1) < 1e-6
    client.events.reward(event_id=event, value=float(ranked.reward_action_id == "wrong"))
    client.events.activate(event_id=event)
    shown.append(ranked.reward_action_id)
    time.sleep(0.02)
