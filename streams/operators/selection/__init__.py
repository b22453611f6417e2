"""Select and combine: which models a query asks, and what is answered by its deadline.

    queries ─▶ kernel ─▶ serving ─▶ dispatch ─▶ models.<m>.queries
                  │         └─▶ combiner ◀─ model-predictions
                  ▼                └─▶ answer ─▶ predictions
             state_view

kernel        the role's kernel: decodes a query and finds the policy state that decides
serving       a decided query: admission, cache, models, answer
dispatch      the rows that models are asked, and queries that name a version
combiner      waits for outputs until all are there, or the deadline comes
coding        sums of inputs, and outputs from sums
groups        rows that are coded together
reconstruction  forms groups as rows are asked; decoded outputs for the missing ones
answer        outputs ─▶ answer: combined, partial or default; running means as substitutes
pending       one query in hand, each application's quota, queries parked for a state
state_view    the policy states that were read lately
admission     refuses what a model cannot answer in time
cache         remembers outputs by input
plan          what a query asks after its first models
walk          what one query asks of its application's graph
walks         asks the stages, and the next ones about what they have answered
walk_inputs   what each row is given, of the answers that belong to its items
walk_answer   what the stages have answered ─▶ answer
overdue       queries whose next models must be asked without an answer
latencies     how long each model takes to answer
"""
