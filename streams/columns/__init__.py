"""The common rows of a poll in C, over the bytes of whole record batches; everything else is left to the kernels.

batches       record batches, in and out (batches.pxd: in C, batches.pyx: for Python)
texts         places in bytes that clients have written (texts.pxd)
"""
