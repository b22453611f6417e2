"""Runs pipelines of scikit-learn as plans of fused stages, over steps that all models of a process share.

    package   a file a step, named by its digest; a graph in the manifest names them       conversion, steps, graph
    store     digest ─▶ object: a step that another model holds already is not even read   store
    plan      made when the model is loaded: what a batch goes through, with its buffers    plan
    stages    texts ─▶ counts ─▶ weights ─▶ sums in one; arrays one after the other         texts, grams, arrays

This is PRETZEL's white box (Lee et al., OSDI 2018): models that were made from each other's parts cost what differs.
"""
