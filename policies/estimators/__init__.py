"""What another policy would have cost, from the log of the one that served: estimators, their intervals and refusals.

    Log ──▶ contributions of each row ──▶ Estimate (value, standard error, interval), or a refusal

Arithmetic on arrays alone. `log.py` says what a log is, `registry.py` names the estimators.
"""
