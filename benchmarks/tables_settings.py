"""What the searches behind the paper's tables are set to, all in one place, with the reasons.

A search on one processor core reaches the paper's rows if a trial costs about a minute:

- *Few epochs, whole data.* What a small network needs is steps, not passes over the data, so a
  trial sees all training images but few times: `epochs` from scratch, 40 % of them with inherited
  weights. Small data sets have so few steps an epoch that they afford cross-validation.
- *The last quarter of the epochs for what is left* after pruning: of a network of which so short a
  training with a low threshold leaves 1 600 weights, accuracy rises from 96.0 to 98.4 % by it.
- *The learning rate falls to 0 as a cosine in every trial.* With a constant one the last epoch's
  accuracy jumps by more than the networks of the front differ.
- *Known good networks first.* `Settings.networks` starts the search close to the paper's rows: a
  strided first convolution and two small ones where working memory counts, large maps that are
  averaged in the end where only weights do. Morphs of them inherit their weights.
- *Narrow ranges.* The paper's ranges reach 100 filters and 800 000 FC weights; its winners have a
  thousand parameters. Large networks cost the most and win nothing here.
- *A budget at the largest published row*, which the search prefers.
- *Long training for the front only.* `Final` is what members of the front get in the end.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from keras_sparse.tuner.budget import Budget
from keras_sparse.tuner.hypermodel import SparseCNN
from keras_sparse.tuner.parameters import Configuration, Value

from benchmarks.tables_networks import (
    Network,
    averaged,
    coarse,
    configuration_of,
    lenet_like,
    paired,
    pooled,
    strided,
    strided_pairs,
    strided_triple,
    twice_strided,
    unpooled,
)

TRIALS = 120
SEED = 1
VARIANTS = ("main", "random", "size")
"""The search itself; random configurations instead of proposals; without working memory."""

PRUNING = {1: "unstructured", 2: "structured", 3: "structured"}
"""Of the paper's tables; 2 and 3 come from one search."""

ABLATION_SEEDS = (1, 2, 3)
"""Of the comparison with and without pruning."""

MEMORY = {1: "", 2: "inputs+weights", 3: "inputs+outputs"}
"""Model of working memory of each table; the first counts parameters only."""


class Final(NamedTuple):
    """Training of members of the front.

    Attributes:
        epochs: Of what pruning left, zeros held.
        heat_epochs: The same in the heats, from which the members come; 0 for none.
        quantized_epochs: Then with fake quantization.
        rate: Adam's learning rate at the start.
        shift: Training images move by up to so many pixels both ways; 0 for none.
        flip: Whether they are mirrored.
        affine: Whether they turn, stretch and shear, see `benchmarks.augmentation`.
        inverted: Whether light and dark change places in half of them: letters on photographs are
            of both kinds.
        bound: Exponent of the generalized cross-entropy, see `benchmarks.tables_losses`; 0 for the
            cross-entropy.
        distillation: Share of the teacher's answer in the labels; 0 for no teacher.
        teacher_steps: Training steps of the teacher, at least 10 epochs.
        members: At most so many networks; of rows with heats every winner, with folds only these.
        folds: Of a cross-validation in the heats, where one validation set is too small to tell
            candidates apart; then members train on training and validation images. 0 for none.
    """

    epochs: int = 60
    heat_epochs: int = 6
    quantized_epochs: int = 3
    rate: float = 5e-3
    shift: int = 1
    flip: bool = False
    affine: bool = False
    inverted: bool = False
    bound: float = 0.0
    distillation: float = 0.5
    teacher_steps: int = 6000
    members: int = 5
    folds: int = 0


class Settings(NamedTuple):
    """One search.

    Attributes:
        data: Name of the data set.
        pruning: "unstructured", "structured" or None.
        variant: One of `VARIANTS`.
        epochs: Of a trial from scratch.
        recovery: Share of them, the last ones, in which what is left trains without noise.
        initial: Random configurations after the networks tried first.
        batch: Examples of a step.
        folds: Of a cross-validation on the training images; 0 to use the validation set.
        shift: As in `Final`, in the search.
        examples: Training images used; None for all.
        trials: How many.
        seed: Of everything random.
        budget: What the search prefers.
        networks: Tried first.
        entrants: Of these and the late ones, what competes for every row to which it can be
            trimmed: how well it does with few weights, its own accuracy says only roughly.
        late: Tried after all trials: for rows beyond what the search was made for.
        ranges: Of the extended space, see `SparseCNN`; in the end with those of all searches.
        alpha: Weight of the KL term of the networks tried first.
        threshold: Their pruning thresholds on log α.
        rate: Adam's learning rate at the start of a trial.
        most_seconds: Longest trial that may be proposed, by the common cost model, which is about
            half of what one core of a small virtual machine takes.
        final: Training of the front.
        remark: What a reader of its results must know.
    """

    data: str
    pruning: str | None
    variant: str = "main"
    epochs: int = 12
    recovery: float = 0.25
    initial: int = 4
    batch: int = 256
    folds: int = 0
    shift: int = 0
    examples: int | None = None
    trials: int = TRIALS
    seed: int = SEED
    budget: Budget = Budget()
    networks: tuple[Network, ...] = ()
    entrants: tuple[Network, ...] = ()
    late: tuple[Network, ...] = ()
    ranges: Mapping[str, Sequence[Value]] = {}
    alpha: float = 0.05
    threshold: float = 0.0
    rate: float = 3e-3
    most_seconds: float = 100.0
    final: Final = Final()
    remark: str = ""

    @property
    def name(self) -> str:
        """Of the search and of its folders."""
        parts = [self.data, self.pruning or "plain"]
        parts += [] if self.variant == "main" else [self.variant]
        parts += [f"{self.examples}"] if self.examples else []
        parts += [f"seed{self.seed}"] if self.seed != SEED or self.examples else []
        return "-".join(parts)

    @property
    def parts(self) -> tuple["Settings", "Settings"]:
        """The search, and the same with the networks that come late."""
        more = {"trials": self.trials + len(self.late), "networks": self.networks + self.late}
        return self._replace(late=()), self._replace(**more, late=())

    @property
    def has_members(self) -> bool:
        """Whether networks of it are trained on; the others are compared by their fronts."""
        return self.variant == "main" and self.examples is None

    @property
    def objectives(self) -> tuple[str, ...]:
        """The paper's: working memory with structured pruning only."""
        has_memory = self.pruning == "structured" and self.variant != "size"
        return ("val_error", "model_size", *(("working_memory",) if has_memory else ()))


_COMMON: dict[str, Sequence[Value]] = {
    "num-conv-blocks": (1, 2),
    "right-branch": [False],  # a neuron that reads the raw image costs a row's whole size
    "zero-regularization-epochs": (5, 15),
}
_STRUCTURED: dict[str, Sequence[Value]] = {
    **_COMMON,
    "num-filters": (1, 32),
    "total-fc-layer-weights": (50, 4000),
    "alpha": (0.01, 0.5),
    "pruning-thresholds": (-6.0, 1.0),
}
_UNSTRUCTURED: dict[str, Sequence[Value]] = {
    **_COMMON,
    "num-conv-blocks": (1, 3),  # working memory does not count: pooling as often as it helps
    "num-filters": (2, 48),
    "total-fc-layer-weights": (200, 20_000),
    "alpha": (0.05, 1.0),
    # log σ² starts at −10 and Adam moves it by at most its learning rate a step: a short training
    # does not reach the usual threshold of 3.
    "pruning-thresholds": (-4.0, 3.0),
}

_SMALL_SET = Final(epochs=400, heat_epochs=0, quantized_epochs=20, affine=True)
"""Few images: many epochs of them, turned and stretched. 500 validation images are too few to tell
candidates apart: without heats the trials' cross-validation chooses, or the heats have one, too."""

_STRUCTURED_SETS = {
    "mnist": Settings(
        "mnist",
        "structured",
        budget=Budget(ram=2007, flash=2836, accuracy=0.95),
        networks=(
            strided(4, 8, 12),  # 2 302 parameters, WM1 1 198: inside Table 2's first row
            strided(4, 6, 8),  # 1 432 and 898: inside its second
            strided(4, 10, 16),
            strided(3, 7, 12),  # WM2 1 354: inside Table 3's first row
            twice_strided(3, 8, 9, down=2),  # 1 731, WM2 632: inside its second
        ),
        late=(  # trimmed, as small as the networks by hand
            strided(4, 6, 24),
            strided(4, 8, 24),
            strided_pairs(8, 24, 32, 32),
            strided_pairs(4, 12, 24, 24),  # wider, so that more is trimmed
            strided_triple(8, 24, 16, 32, 32),
            paired(10, 24, 32, 32),
            paired(10, 15, 32, 32),
        ),
    ),
    "cifar10-binary": Settings(
        "cifar10-binary",
        "structured",
        epochs=8,
        # Twice the rows' memory and size: the end trims wide networks to a few weights a map, which
        # does better than narrow networks of that size.
        budget=Budget(ram=2620, flash=4096, accuracy=0.70),
        networks=(
            paired(6, 8, 24, 24, down=2),  # inputs up to 1 176: trimmed, inside Table 2's row
            coarse(5, 8, 24, down=2),  # the same
            unpooled(9, 9, 24, 32, down=3),  # WM2 900: trimmed, inside Table 3's row
            strided_pairs(16, 18, 32, 32),  # trimmed, as large as the largest by hand
        ),
        ranges={"input-pooling-type": ["max", "average"]},  # of photographs the mean says more
        final=Final(shift=2, flip=True),
    ),
    "chars4k-binary": Settings(
        "chars4k-binary",
        "structured",
        epochs=45,
        batch=64,
        folds=3,
        shift=1,
        budget=Budget(ram=1679, flash=2048, accuracy=0.70),
        networks=(
            paired(4, 8, 8, 12, stride=2),  # trimmed, for Table 2's row
            coarse(8, 8, 12, down=2, pool=2),  # the same
            lenet_like(4, 8),  # WM2 1 424: trimmed, inside Table 3's second row
            strided(2, 2, 4),  # 144 parameters: inside the same
            twice_strided(4, 15, 32, down=2),  # WM2 391: inside its first
        ),
        entrants=(lenet_like(4, 8),),
        ranges={"input-pooling-type": ["max", "average"]},
        final=_SMALL_SET._replace(heat_epochs=150, folds=3, inverted=True, bound=0.7),
    ),
    "chars4k": Settings(
        "chars4k",
        "structured",
        epochs=45,
        batch=64,
        folds=3,
        shift=1,
        budget=Budget(ram=4096, flash=8192, accuracy=0.50),
        networks=(strided(6, 12, 16), strided(8, 16, 24)),
        final=_SMALL_SET,
    ),
    "kth-tips": Settings(
        "kth-tips",
        "structured",
        epochs=120,
        batch=64,
        # No folds: they would part crops of one photograph, which the validation set does not.
        shift=1,
        budget=Budget(ram=4096, flash=8192, accuracy=0.60),
        networks=(strided(6, 12, 16, down=2), twice_strided(6, 12, 16, down=2)),
        final=_SMALL_SET._replace(shift=2, flip=True),
    ),
    "digits": Settings(  # for tests
        "digits",
        "structured",
        epochs=2,
        batch=64,
        networks=(Network((((4, 3, 1),),), (2,)),),
        final=Final(1, 1, 1, bound=0.7, teacher_steps=100, members=2),
    ),
}
_UNSTRUCTURED_SETS = {
    "mnist": _STRUCTURED_SETS["mnist"]._replace(
        budget=Budget(flash=1000, accuracy=0.96),
        networks=(
            averaged(8, 12, 16, 24),
            averaged(6, 8, 12, 16),
            averaged(8, 12, 16, 24, kernel=3),
            pooled(6, 12, 24),
        ),
        late=(averaged(16, 24, 32, 48),),  # as large as the largest by hand
        final=Final(),  # also of the moved images: in so many epochs they help (`--effects`)
    ),
    "cifar10-binary": _STRUCTURED_SETS["cifar10-binary"]._replace(
        budget=Budget(flash=3200, accuracy=0.70),
        epochs=5,  # heats tell wide networks apart, which take long
        # Two of them wide: the end trims them to a few weights a map.
        networks=(
            averaged(8, 16, 16, 24),
            averaged(12, 24, 32, 48),
            averaged(12, 24, 24, 48, 48, kernel=3),
        ),
        most_seconds=50.0,
        final=Final(flip=True, members=4),
    ),
    "chars4k": _STRUCTURED_SETS["chars4k"]._replace(
        budget=Budget(flash=1700, accuracy=0.50),
        networks=(paired(8, 12, 24, 32), paired(8, 12, 16, 24), pooled(8, 16, 24)),
        remark=(
            "In this search all folds of an heir began with weights of the reference's first fold, "
            "which has seen their validation images (mended since): cross-validated accuracies of "
            "heirs are too good, so that the front and what the search proposed are not to be "
            "relied on. `000`, which answers the paper's row, is no heir; accuracies on validation "
            "and test images in the tables are of networks that have not seen them."
        ),
    ),
    "chars4k-binary": _STRUCTURED_SETS["chars4k-binary"]._replace(budget=Budget(flash=1024)),
    "kth-tips": _STRUCTURED_SETS["kth-tips"]._replace(budget=Budget(flash=4096)),
    "digits": _STRUCTURED_SETS["digits"],
}


def settings_of(data: str, table: int, variant: str = "main") -> Settings:
    """The search of a table and data set."""
    if table not in PRUNING:
        raise ValueError(f"table must be one of {list(PRUNING)}. Received: table={table!r}")
    is_structured = PRUNING[table] == "structured"
    sets = _STRUCTURED_SETS if is_structured else _UNSTRUCTURED_SETS
    if data not in sets:
        raise ValueError(f"data must be one of {list(sets)}. Received: data={data!r}")
    settings = sets[data]._replace(pruning=PRUNING[table], variant=variant)
    if variant != "main":
        settings = settings._replace(late=())
    if is_structured:
        return settings._replace(ranges={**_STRUCTURED, **settings.ranges})
    # More KL, lower thresholds and more steps, so that the first networks are already sparse.
    return settings._replace(
        ranges={**_UNSTRUCTURED, **settings.ranges},
        alpha=0.5,
        threshold=-1.0,
        batch=min(settings.batch, 128),
        most_seconds=1.5 * settings.most_seconds,
    )


def ablation_settings(pruned: bool, seed: int) -> Settings:
    """One search of the comparison with and without pruning, on a part of MNIST.

    Short trials of networks with at most two blocks: there are 600 of them.
    """
    ranges = {**_UNSTRUCTURED, "num-conv-blocks": (1, 2)}
    unpruned = {k: v for k, v in ranges.items() if not k.startswith(_PRUNING_ONLY)}
    return settings_of("mnist", 1)._replace(
        pruning="unstructured" if pruned else None,
        epochs=6,
        examples=10_000,
        trials=100,
        seed=seed,
        budget=Budget(),
        networks=(),
        late=(),
        ranges=ranges if pruned else unpruned,
    )


_PRUNING_ONLY = ("alpha", "pruning-thresholds", "zero-regularization-epochs")


def hypermodel_of(settings: Settings, shape: tuple[int, int, int], classes: int) -> SparseCNN:
    """The networks of a search."""
    return SparseCNN(
        shape,
        classes,
        pruning=settings.pruning,
        ranges=dict(settings.ranges),
        learning_rate=settings.rate,
        seed=settings.seed,
    )


def first_configurations(settings: Settings, model: SparseCNN) -> list[Configuration]:
    """The hand-made networks with which a search begins."""
    return [
        configuration_of(network, model, alpha=settings.alpha, threshold=settings.threshold)
        for network in settings.networks
    ]
