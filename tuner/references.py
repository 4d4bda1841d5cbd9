"""Published results to compare a search with: SpArSe (Fedorov et al., 2019) and BitNetMCU.

Accuracies are on the test set, in shares of one; sizes are in values at one byte each, the paper's
model size. The binary sets of the paper are not defined in it, so that a number on `*-binary` is a
reference, not the same test.
"""

from typing import NamedTuple

_KB = 1024.0


class Published(NamedTuple):
    """One published network.

    Attributes:
        method: Of whom.
        accuracy: On the test set, 0 to 1.
        model_size: Parameters that are not zero, one byte each.
        working_memory: Bytes, by `memory_model`; None where it is not published.
        memory_model: "inputs+weights" or "inputs+outputs"; "" without working memory.
        note: What to know before comparing.
        gpu_days: How long its search took on an RTX 2080; None where it is not published.
    """

    method: str
    accuracy: float
    model_size: float
    working_memory: float | None = None
    memory_model: str = ""
    note: str = ""
    gpu_days: float | None = None


def published(data: str, memory_model: str = "") -> list[Published]:
    """The published results on a data set; none if there are none.

    Args:
        data: Name of the data set, as in `keras_sparse.datasets.NAMES`.
        memory_model: Only those with this model of working memory; "" for those that count
            parameters only.
    """
    return [row for row in _TABLES.get(data, ()) if row.memory_model == memory_model]


def _counted(method: str, percent: float, parameters: float) -> Published:
    return Published(method, round(percent / 100, 4), parameters)


def _later(method: str, percent: float, size: float) -> Published:
    note = "by hand, 16×16 images; bytes of weights of few bits"
    return _counted(method, percent, size)._replace(note=note)


def _measured(
    method: str, percent: float, memory_kb: float, size_kb: float, model: str, note: str = ""
) -> Published:
    accuracy = round(percent / 100, 4)
    return Published(method, accuracy, size_kb * _KB, memory_kb * _KB, model, note)


def _searched(row: Published, gpu_days: float) -> Published:
    return row._replace(gpu_days=gpu_days)


_WM1, _WM2 = "inputs+weights", "inputs+outputs"
_TWO_CLASSES = "on a two-class version of the data"

_TABLES: dict[str, tuple[Published, ...]] = {
    "mnist": (
        _searched(_counted("SpArSe", 96.84, 476), 11),
        _searched(_counted("SpArSe", 97.24, 510), 11),
        _searched(_counted("SpArSe", 97.42, 569), 10),
        _searched(_counted("SpArSe", 98.78, 804), 11),
        _searched(_counted("SpArSe", 99.16, 1e3), 8),
        _counted("LeNet + SpVD", 99.10, 1.8e3),
        _counted("ProtoNN", 95.88, 1.6e4),
        _counted("Bonsai", 97.01, 2.15e4),
        _counted("GBDT", 97.90, 1.5e6),
        _counted("RBF-SVM", 97.30, 1e7),
        _counted("kNN", 94.34, 4.71e7),
        _later("BitNetMCU", 98.92, 3.2e3),
        _later("BitNetMCU", 99.06, 5.4e3),
        _later("BitNetMCU", 99.55, 1.1e4),
        _searched(_measured("SpArSe", 98.64, 1.96, 2.77, _WM1), 1),
        _searched(_measured("SpArSe", 96.49, 1.33, 1.44, _WM1), 1),
        _measured("Bonsai", 94.38, 2.0, 1.96, _WM1, _TWO_CLASSES),
        _searched(_measured("SpArSe", 97.03, 1.38, 15, _WM2), 1),
        _searched(_measured("SpArSe", 95.76, 0.62, 1.76, _WM2), 2),
        _measured("Bonsai", 94.38, 2.0, 1.96, _WM2, _TWO_CLASSES),
    ),
    "cifar10-binary": (
        _searched(_counted("SpArSe", 73.08, 487), 1),
        _searched(_counted("SpArSe", 76.66, 1.4e3), 9),
        _searched(_counted("SpArSe", 77.90, 1.6e3), 8),
        _searched(_counted("SpArSe", 81.77, 3.2e3), 3),
        _counted("LeNet + SpVD", 75.09, 1.6e5),
        _counted("ProtoNN", 76.35, 4.1e3),
        _counted("Bonsai", 73.02, 512),
        _counted("Bonsai", 76.64, 4.1e3),
        _counted("GBDT", 77.19, 4e5),
        _counted("RBF-SVM", 81.68, 1.6e7),
        _counted("kNN", 73.70, 2e7),
        _searched(_measured("SpArSe", 73.84, 1.28, 0.78, _WM1), 5),
        _measured("Bonsai", 73.02, 2.0, 1.98, _WM1),
        _searched(_measured("SpArSe", 70.41, 0.91, 1.98, _WM2), 18),
        _measured("Bonsai", 73.02, 2.0, 1.98, _WM2),
    ),
    "chars4k": (
        _searched(_counted("SpArSe", 67.82, 1.7e3), 1),
        _counted("Bonsai", 58.59, 2.6e4),
        _counted("GBDT", 43.34, 2.5e6),
        _counted("RBF-SVM", 48.04, 2e6),
        _counted("kNN", 39.32, 1.7e6),
    ),
    "chars4k-binary": (
        _searched(_measured("SpArSe", 77.78, 0.72, 0.46, _WM1), 1),
        _measured("Bonsai", 74.28, 2.0, 2.0, _WM1),
        _searched(_measured("SpArSe", 76.83, 0.39, 20.12, _WM2), 1),
        _searched(_measured("SpArSe", 74.87, 1.64, 0.16, _WM2), 3),
        _measured("Bonsai", 74.71, 2.0, 2.0, _WM2),
    ),
}
