"""The control plane: a Faust app that reads `reports` and shows what the deployment is doing. It may die unnoticed.

app              the Faust app; faust_kafka: its way to Kafka; host_guard: who may read the page
report_filter    what of a report is taken
figures          live figures of each process; history: sums of the last minutes
overview         what the page shows; page_types: the shape of it
alerts           what is wrong; advice: of an application; outages: of Kafka and Redis
visibility       whether the page sees anything
"""
