"""One process of roles: how it runs, and what it says about itself.

run             roles on Kafka until a signal
gc_schedule     when Python's garbage collector runs
cpu_profiler    where CPU time goes, by sampling
prometheus      the latest reports for Prometheus, with a line of help for each metric
remedies        what to do when a figure is bad
readiness       whether roles live and can work, by their last reports
"""
