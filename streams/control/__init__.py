"""The control plane: a Faust app that reads `reports` and shows what the deployment is doing. Nothing depends on it.

app              the Faust app; faust_kafka: its way to Kafka; host_guard: who may read the page
report_filter    drops the parts of a report that are no names or numbers
figures          live figures of each process; history: sums of the last minutes
overview         what the page shows; page_types: the shape of it
alerts           faults in words; advice: of an application; outages: of Kafka and Redis
promoting        carries candidates from step to step; guards: what figures say about one; promotion_rows: what is shown
planning         plans the hosts of pools
visibility       whether the page can read Kafka
"""
