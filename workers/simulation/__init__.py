"""Predicts what a deployment will do: the worker's own batcher and controllers, fed with simulated time. Pure.

    arrivals ─ask─▶ selection ─dispatch─▶ batcher ─▶ service time ─reply─▶ selection ─answer─▶ client
                    polls, draws           the real one: caps, early drop    deadlines

plan        what is simulated: applications, models, legs between them
arrivals    when queries come: Poisson, constant, or a trace
service     how long a batch takes: a + b * rows, or recorded batches
legs        how long a record is on its way: constants, or recorded ones
worker      one replica of a model, around `workers.kernel.model.batcher`
selection   one process of the role `selection`: its polls, and which partition gets the rows
simulator   ties them together, on the one queue of events (`streams.testing.events`)
kernels     the same plan on the roles' own kernels: hosts, graphs, hedges, cascades, the cache, admission;
            `role_models` and `replicas` are what they run, `kernel_outcome` what became of it
host        many models in one process: the real schedules and residency
run         what became of every query and batch, and the figures
calibration legs and service times out of what a deployment has logged

It stands above `workers.kernel`, whose decisions it uses, and below everything that reads a file or a clock.
"""
