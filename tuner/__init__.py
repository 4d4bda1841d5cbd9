"""Sparse architecture search, imported as `keras_sparse.tuner`."""
