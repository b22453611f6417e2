"""The control plane: a Faust app that reads `reports` and shows what the deployment is doing. Nothing depends on it.

app      the Faust app; faust_kafka: its way to Kafka
figures  live figures of each process; history: sums of the last minutes
page/    what the page shows, who may read it, and its alerts
carry/   what is carried on here: promotions and plans

It is no operator, and has no `RoleLoop`: Faust has the consumer, the table and the web server. While Kafka is away
Faust starts its agents anew as they are cancelled, and its event loop would never close. So a process with the page
ends by `os._exit` then, after its other roles have left (`deploy.system.run`).

What decides about promotions and plans is pure (`streams.promotion`, `streams.planning`). Timers of the page carry it
on: plans go by the figures that the page folds, and a step of a candidate changes what others may have published
meanwhile, which is read first. The contract of operators has no effect for that.
"""
