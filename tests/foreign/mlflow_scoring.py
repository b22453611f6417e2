"""What a user of MLflow's own client of scoring servers would write; `python mlflow_scoring.py HOST PORT`."""

import sys

import numpy as np
import pandas as pd
from mlflow.pyfunc.scoring_server.client import ScoringServerClient

client = ScoringServerClient(sys.argv[1], sys.argv[2])
client.wait_server_ready(timeout=60)
assert client.get_version()
frame = pd.DataFrame({"a": [1.0, 3.0, 5.0], "b": [2.0, 4.0, 5.0]})
for given in (frame, frame.to_numpy(), frame.to_numpy().tolist()):
    reply = client.invoke(given)
    answers = reply.get_predictions("ndarray")
    chosen = [one["decision"][0] for one in reply["details"]]
    odd = [1 - answer if name == "wrong" else answer for answer, name in zip(answers.tolist(), chosen, strict=True)]
    assert odd == [1, 1, 0], reply
assert client.invoke(frame).get_predictions().shape == (3, 1)
told = ""
try:
    client.invoke(np.zeros((1, 7)))
except Exception as error:  # noqa: BLE001 - it raises nothing narrower
    told = str(error)
assert "error code 400" in told, told
