"""Loops written by hand, against which Skysail is measured: the floor, and what one would write with public libraries.

The floor has Skysail's own codec and the model as arrays (`codec_work.py`), and nothing else of Skysail's. The other
loops have fastavro and scikit-learn (`work.py`), which most of their CPU time goes to.

They import Kafka clients directly. Beside the runtime's adapter no other place does.
"""
