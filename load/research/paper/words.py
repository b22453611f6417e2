"""What is not as in the paper, a paragraph a figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

DIFFERENCES: Final[Mapping[str, str]] = {
    "figure3": """Times are those that the worker reports for predicting alone. 64 features here, 784 (MNIST) there;
the kernel SVM has a few thousand support vectors of 64 features, so it is faster than Clipper's 200 rows a second. A
small neural network stands in for the linear SVM on Spark. A record holds 1,024 of these rows at most, so cheap models
do not reach 20 ms within the plot. The text gives one number, the factor of 241 between largest batches. Clipper ran
on two Intel Haswell-EP with 256 GB, clients and models apart.""",
    "figure4": """Rows a second are those of a whole worker: Kafka, decoding and encoding included, on cores that it
shares with broker and sender; the model's own time leaves those out. Clipper's batch of one is a call to a container;
here it is a turn of the worker and an answer record, which on this machine costs as much. The gain through the whole
system is smaller than that of the worker, since queries and answers are a record each whatever is batched between
them; it is taken while the harness neither sends nor reads, and there an image travels as a byte a pixel, in the other
rows as float32. Far below the objective AIMD climbs by a
ninth here (TCP's slow start), or a few seconds would not be enough for the cheapest models.""",
    "figure5": """Clipper waits at most 2 ms and gains where BLAS likes matrices. Here a model of known cost (5 ms a
batch and 0.1 ms a row) shows the waiting alone: rows a second of its time are what it could do in such batches, not
what it was asked. The wait also ends when the most urgent row can wait no longer.""",
    "figure6": """Clipper scaled a network on four machines with a GPU each, over 10 Gb/s; here the model waits, as one
on a GPU does, all workers share this machine's cores, and they take their work from one topic of four partitions.
Three workers cannot share four partitions evenly: while all are busy they do three times as much, but one has two
partitions to drain.""",
    "figure7": """Seven public models of MNIST instead of the paper's of CIFAR-10 and ImageNet, so the errors are
smaller and a plain vote need not beat the best of them. The figure's point is that fewer answers are wrong the more
models agree; and every answer is compared with a plain vote in numpy.""",
    "figure8": """The same experiment: 20,000 queries, the best of five models broken from 5,000 to 10,000. Clipper's
models are right in .76, .65, .83, .54 and .91 of the cases and its policies run in a notebook, over 50 runs; here it
is one run through Kafka, with public MNIST models (or ones trained on digits, if those are not there). Exp3 here mixes
and shares weight; as published it does not come back in a fifth of the runs. The text prints no errors.""",
    "figure9": """Clipper's ensembles of random forests meet 20 ms; here the deadline is 100 ms, each answer takes
four legs over Kafka, and up to 16 workers share the machine with the broker, so large ensembles are asked less often,
and answers leave 35 ms before the deadline (`selection.margin_ms`, 5 ms otherwise), defaults among them. A model that
dawdles holds up the rows behind it too. The text prints no numbers.""",
    "figure10": """Speakers of spoken digits instead of dialects of TIMIT, and other models; so the errors cannot be
compared with the paper's, but with a numpy reference of the same data, order and parameters.""",
    "feedback": """Clipper asks every model again when feedback comes, unless the cache still holds what it said. Here
an answer carries what each model said and with what probability it was asked, so feedback asks nobody: the first bar
is that path by itself. What the cache saves is asking the models to begin with, which the other two bars include:
queries, answers, feedback and learning, all on this machine.""",
    "overload": """The paper has no such figure. A model of known cost (889 rows a second at most) is asked what it
can do and three times that, in fixed batches of 40, and once in batches that size themselves, which the objective of
150 ms lets become larger. With admission what cannot be answered in time gets the default
at once, the reason with it. Without it queries wait until their deadline; the worker drops them and keeps the model
busy with rows that can still be in time, so that goodput does not collapse, but those that are lost learn so only at
their deadline.""",
}
