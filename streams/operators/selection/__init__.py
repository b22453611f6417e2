"""Select and combine: which models a query asks, and what is answered by its deadline.

    queries ─▶ kernel ─▶ serving ─▶ questions ─▶ dispatch ─▶ models.<m>.queries
                  │         └─▶ combiner ◀─ model-predictions
                  ▼                └─▶ answer ─▶ predictions
             state_view

kernel        the role's kernel: decodes a query and finds the policy state that decides
plain         what columns need of it
state_view    the policy states that were read lately
pending       one query in hand, each application's quota, queries parked for a state
serving       a decided query: its models are drawn, and asked; answers
questions     the one way to ask a model: time, admission, cache, count, dispatch; and who asks more
dispatch      the rows that models are asked, and which versions
admission     refuses what a model cannot answer in time
cache         remembers outputs by input
latencies     how long each model takes to answer
combiner      waits for outputs until all are there, or the deadline comes
answer        outputs ─▶ answer: combined, partial or default; running means as substitutes

Rooms that an application without them never meets:

again/        another model after the first, or the same one twice
graph/        the stages of a graph
coded/        a sum of inputs is asked, too, and its answer stands in for one that does not come
features/     features that are looked up, and candidates to rank
"""
