"""The common rows of a poll in C, over the bytes of whole record batches; everything else is left to the kernels.

behind         an operator that passes all on: the others are built on it
batches        record batches, in and out (batches.pxd: in C, batches.pyx: for Python)
texts          places in bytes that clients have written (texts.pxd)
probes         both, for tests
predictions    a prediction of the common form, observations likewise (predictions.pxd, observations.pxd)
saying         a prediction as selection writes it (saying.pxd)
select         selection over columns (selection.pyx, draw.pxd), and what its records have in common (pieces)
ask            queries that wait for models in workers (asking.pyx)
join           the joiner over columns (joining.pyx), and what its records have in common (join_forms)
learn          the learner over columns (learning.pyx), and what policies learn from a lesson (teaching.pxd)
figures        what such operators report
"""
