"""Gives the memory of a trained network back, which TensorFlow would keep until the process ends.

Every function with a gradient of its own that is traced into a graph (`tf.custom_gradient`: those
of the sparse layers, and one in every optimizer of Keras) is entered in a table of the whole
process, and its entry keeps the graph, some megabytes a trial. `keras.backend.clear_session` leaves
them there.
"""

import contextlib
import gc
from collections.abc import Iterator

import keras
from tensorflow.python.framework import ops


@contextlib.contextmanager
def freed() -> Iterator[None]:
    """Networks that are built, trained and dropped inside leave nothing behind.

    What was traced before stays as it is. Models from inside may be used afterwards, but functions
    that were traced inside have no custom gradients any more.
    """
    # Not public, but the only way: there is neither a public name nor a function that removes one.
    table = getattr(ops.gradient_registry, "_registry", None)
    before = set(table or ())
    keras.backend.clear_session()
    try:
        yield
    finally:
        if table is not None:
            for name in set(table) - before:
                del table[name]
        gc.collect()
