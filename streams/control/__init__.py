"""The control plane: a Faust app that reads `reports` and shows what the deployment is doing. Nothing depends on it.

app      the Faust app; faust_kafka: its way to Kafka
figures  live figures of each process; history: sums of the last minutes
page/    what the page shows, who may read it, and its alerts
carry/   what is carried on here: promotions and plans
"""
