"""What another policy would have cost, from recorded or live observations.

records ──▶ History ──▶ Candidate's propensities, decision by decision ──▶ Log (policies.estimators) ──▶ Evaluation
"""
