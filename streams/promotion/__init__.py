"""Promotion on evidence: candidate → shadow → canary → stable → back, for versions of models and for policies.

evidence     how a candidate compares: `Evidence`, and how many comparisons are missing
versions     observations folded into the evidence on a version
apprentice   observations folded into the evidence on a policy, which learns along and answers nothing
serving      observations folded into what the policies that serve cost
copies       tells copies of observations from first ones
guardrails   how it compares by further metrics, and what of that holds it back or sends it back
trail        how a mean and its bounds have stood over time
verdict      evidence, guards and plan into one verdict: stay, step, promote, back
lifecycle    the candidates of a deployment: observations in, steps out

Pure: no I/O, no clock; a replay of the same observations and times gives the same bytes.
"""
