import warnings
from collections import Counter

import keras
import numpy as np
import pytest

from keras_sparse import sparsify, sparsity, strip
from keras_sparse.counting import sparse_layers
from keras_sparse.layers import BCConv2D, BCDense, SpVDConv2D, SpVDDense
from tests.random_models import RandomModel

L = keras.layers
CHUNK = 10


def compare(model: keras.Model, seed: int, **arguments) -> keras.Model:
    """Strips and asserts equal predictions; returns the stripped model."""
    x = np.random.default_rng(seed).normal(size=(4, *model.input_shape[1:])).astype("float32")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        small = strip(model, **arguments)
    expected = np.asarray(model(x))
    np.testing.assert_allclose(small(x), expected, atol=1e-4 * (1 + np.abs(expected).max()))
    assert not sparse_layers(small)
    return small


def weights_of(model: keras.Model) -> int:
    names = ("kernel", "bias", "depthwise_kernel", "pointwise_kernel", "gamma", "beta")
    return sum(
        int(np.prod(v.shape)) for layer in model.layers for v in layer.weights if v.name in names
    )


@pytest.mark.parametrize(
    "chunk", [pytest.param(c, marks=pytest.mark.slow if c >= 5 else ()) for c in range(30)]
)
@pytest.mark.parametrize("method", ["spvd", "bc"])
def test_random_graphs_predict_the_same(method, chunk):
    """200 graphs, 600 in the full tests; what they contain is asserted below."""
    shrunk = 0
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        model = RandomModel(seed, method).build()
        # Dead channels come from zeros as well as from groups, so SpVD models may shrink too.
        small = compare(model, seed, remove_dead=True if seed % 2 else None)
        shrunk += weights_of(small) < weights_of(model)
        if method == "spvd" and seed % 2 == 0:
            assert weights_of(small) == weights_of(model)
        keras.backend.clear_session()
    assert shrunk >= (1 if method == "spvd" else 5)


def test_the_generator_covers_every_feature():
    features: Counter[str] = Counter()
    for seed in range(60):
        generator = RandomModel(seed, "bc")
        generator.build()
        features += generator.features
        keras.backend.clear_session()
    needed = ["residual", "branch", "norm", "pool", "flatten", "global", "valid", "same", "plain"]
    needed += ["Conv2D", "DepthwiseConv2D", "SeparableConv2D", "Dense", "multiplier2", "all pruned"]
    needed += ["merge", "resize", "strides"]
    assert all(features[name] >= 5 for name in needed), features


def prune_groups(layer, dead, stage=0):
    """Kills the given groups of a BC layer and keeps the others."""
    name = layer.stages()[stage].kernel_name
    posterior = layer.named_variables()[f"{name}_group_log_variance"]
    log_variance = np.full(posterior.shape, -9.0)
    log_variance.reshape(-1)[list(dead)] = 9.0
    posterior.assign(log_variance)


def test_pruned_maps_leave_the_layer_and_its_reader():
    inputs = keras.Input((8, 8, 2))
    conv, dense = BCConv2D(6, 3, name="conv"), BCDense(3, name="dense")
    x = L.MaxPooling2D(2)(L.ReLU()(L.BatchNormalization(name="norm")(conv(inputs))))
    model = keras.Model(inputs, dense(L.Flatten()(x)))
    prune_groups(conv, [0, 4])
    small = compare(model, 0)
    assert small.get_layer("conv").kernel.shape == (3, 3, 2, 4)
    assert small.get_layer("norm").gamma.shape == (4,)
    assert small.get_layer("dense").kernel.shape == (3 * 3 * 4, 3)


def test_a_constant_behind_batch_norm_is_folded_into_the_next_bias():
    inputs = keras.Input((6, 6, 1))
    conv = BCConv2D(4, 3, name="conv")
    reader = BCConv2D(2, 3, use_bias=False, name="reader")
    norm = L.BatchNormalization()
    model = keras.Model(inputs, reader(L.ReLU()(norm(conv(inputs)))))
    norm.beta.assign([1.0, 2.0, 3.0, 4.0])
    prune_groups(conv, [1])
    small = compare(model, 0)
    assert small.get_layer("conv").filters == 3
    assert np.any(small.get_layer("reader").bias)


def test_a_constant_behind_batch_norm_stays_before_padding():
    inputs = keras.Input((6, 6, 1))
    conv, reader = BCConv2D(4, 3, name="conv"), BCConv2D(2, 3, padding="same", name="reader")
    norm = L.BatchNormalization()
    model = keras.Model(inputs, reader(L.ReLU()(norm(conv(inputs)))))
    norm.beta.assign([1.0, 2.0, -3.0, 4.0])
    prune_groups(conv, [1, 2])
    # Map 1 is the constant 2, which padding turns into an edge; map 2 is relu(−3) = 0 and can go.
    assert compare(model, 0).get_layer("conv").filters == 3


def test_a_residual_sum_drops_only_what_both_sides_drop():
    inputs = keras.Input((6, 6, 2))
    first = BCConv2D(4, 3, padding="same", name="first")
    second = BCConv2D(4, 3, padding="same", name="second")
    x = first(inputs)
    total = L.Add()([x, second(x)])
    model = keras.Model(inputs, BCConv2D(2, 1, name="reader")(total))
    prune_groups(first, [0, 1])
    prune_groups(second, [1, 2])
    small = compare(model, 0)
    assert small.get_layer("first").filters == small.get_layer("second").filters == 3
    assert small.get_layer("reader").kernel.shape[2] == 3


def test_pruned_inputs_of_a_dense_layer_remove_the_neurons_before():
    model = keras.Sequential(
        [keras.Input((5,)), L.Dense(8, activation="relu", name="before"), BCDense(3, name="dense")]
    )
    prune_groups(model.get_layer("dense"), [0, 2, 3])
    small = compare(model, 0)
    assert small.get_layer("before").units == 5
    assert small.get_layer("dense").kernel.shape == (5, 3)


def test_after_flatten_a_channel_goes_only_with_all_its_positions():
    model = keras.Sequential(
        [keras.Input((4, 4, 1)), L.Conv2D(2, 3, name="conv"), L.Flatten(), BCDense(3, name="dense")]
    )
    # Positions are outermost: inputs 0, 2, 4, 6 are channel 0.
    prune_groups(model.get_layer("dense"), [0, 2, 4])
    partly = compare(model, 0)
    assert partly.get_layer("conv").filters == 2
    assert np.count_nonzero(np.any(partly.get_layer("dense").kernel, axis=1)) == 5
    prune_groups(model.get_layer("dense"), [0, 2, 4, 6, 1])
    assert compare(model, 0).get_layer("conv").filters == 1


def test_the_models_inputs_and_outputs_keep_their_shape():
    model = keras.Sequential([keras.Input((5, 5, 3)), BCConv2D(4, 3)])
    prune_groups(model.layers[0], [0, 1, 2])
    small = compare(model, 0)
    assert small.output_shape == model.output_shape


def test_softmax_and_layers_used_twice_are_left_whole():
    inputs = keras.Input((6, 6, 4))
    twice = BCConv2D(4, 3, padding="same", name="twice")
    soft = BCConv2D(4, 1, activation="softmax", name="soft")
    model = keras.Model(inputs, L.Conv2D(2, 1)(soft(twice(twice(inputs)))))
    prune_groups(twice, [0])
    prune_groups(soft, [1])
    small = compare(model, 0)
    assert small.get_layer("twice").filters == small.get_layer("soft").filters == 4


def test_everything_pruned_keeps_the_strongest_and_warns_with_the_name():
    model = keras.Sequential([keras.Input((4,)), SpVDDense(6, name="victim"), SpVDDense(2)])
    model.get_layer("victim").threshold = -100.0
    with pytest.warns(UserWarning, match="'victim'.*only the strongest"):
        small = strip(model)
    assert np.count_nonzero(small.get_layer("victim").kernel) == 1
    np.testing.assert_allclose(small(np.ones((1, 4))), model(np.ones((1, 4))), rtol=1e-5)


def test_spvd_leaves_zeros_in_place_unless_asked():
    model = keras.Sequential([keras.Input((6, 6, 1)), SpVDConv2D(4, 3), L.Flatten(), SpVDDense(2)])
    conv = model.layers[0]
    kernel = np.array(conv.kernel.numpy())
    kernel[..., 1] = 0.0
    conv.kernel.assign(kernel)
    assert compare(model, 0).layers[0].filters == 4
    assert compare(model, 0, remove_dead=True).layers[0].filters == 3


def test_nested_models_shrink_inside():
    inner = keras.Sequential(
        [keras.Input((6, 6, 2)), BCConv2D(5, 3, name="a"), BCConv2D(3, 3, name="b")], name="inner"
    )
    inputs = keras.Input((6, 6, 2))
    model = keras.Model(inputs, BCDense(2)(L.Flatten()(inner(inputs))))
    prune_groups(inner.get_layer("a"), [0, 1])
    prune_groups(inner.get_layer("b"), [0])
    small = compare(model, 0)
    assert small.get_layer("inner").get_layer("a").filters == 3
    assert small.get_layer("inner").get_layer("b").filters == 3


def test_what_a_call_in_training_mode_computes_is_not_folded():
    inputs = keras.Input((5, 5, 2))
    conv, norm = BCConv2D(4, 3, name="conv"), L.BatchNormalization()
    model = keras.Model(inputs, L.Conv2D(2, 1)(norm(conv(inputs), training=True)))
    norm.moving_mean.assign([3.0] * 4)
    prune_groups(conv, [1])
    assert compare(model, 0).get_layer("conv").filters == 4


def test_merges_of_one_tensor_or_with_constants_are_left_whole():
    inputs = keras.Input((5, 5, 2))
    conv = BCConv2D(4, 3, name="conv")
    x = L.Add()([conv(inputs)])
    x = L.Add()([x, np.ones((1, 3, 3, 4), "float32")])
    model = keras.Model(inputs, L.Conv2D(2, 1)(x))
    prune_groups(conv, [1])
    assert compare(model, 0).get_layer("conv").filters == 4


def test_sparse_layers_inside_wrappers_are_refused_by_name():
    layer = L.TimeDistributed(SpVDDense(3, name="hidden"))
    with pytest.raises(ValueError, match="inside wrappers.*'hidden'"):
        strip(keras.Sequential([keras.Input((5, 4)), layer]))


class MyDense(SpVDDense):
    def __init__(self, units, **kwargs):
        super().__init__(units, activation="relu", **kwargs)

    def get_config(self):
        config = super().get_config()
        del config["activation"]
        return config


def test_a_subclass_of_a_sparse_layer_is_stripped():
    model = keras.Sequential([keras.Input((4,)), MyDense(3, use_bias=False), SpVDDense(2)])
    small = strip(model)
    assert [type(layer) for layer in small.layers] == [L.Dense, L.Dense]


def test_constant_initializers_do_not_hinder():
    start = keras.initializers.Constant(np.ones((3, 3, 2, 4)))
    model = keras.Sequential(
        [
            keras.Input((6, 6, 2)),
            BCConv2D(4, 3, kernel_initializer=start, name="conv"),
            L.Flatten(),
            L.Dense(5, name="adapted"),
            L.Dense(2),
        ]
    )
    prune_groups(model.get_layer("conv"), [0])
    assert compare(model, 0).get_layer("conv").filters == 3


def test_a_plain_model_comes_back_as_a_copy():
    plain = keras.Sequential([keras.Input((4,)), L.Dense(3)])
    copy = strip(plain)
    assert copy is not plain
    np.testing.assert_array_equal(copy(np.ones((1, 4))), plain(np.ones((1, 4))))


def test_round_trip_and_saving(tmp_path):
    plain = keras.Sequential([keras.Input((8, 8, 1)), L.Conv2D(4, 3), L.Flatten(), L.Dense(3)])
    small = strip(sparsify(plain, "bc"))
    assert weights_of(small) == weights_of(plain)
    small.save(tmp_path / "small.keras")
    loaded = keras.models.load_model(tmp_path / "small.keras")
    x = np.ones((2, 8, 8, 1))
    np.testing.assert_allclose(loaded(x), plain(x), rtol=1e-4, atol=1e-5)
    assert sparsity(loaded).total == sparsity(plain).total


def test_subclassed_models_and_lambdas_are_refused():
    class Net(keras.Model):
        pass

    with pytest.raises(ValueError, match="strip.. takes a Sequential or functional model"):
        strip(Net())
    model = keras.Sequential(
        [keras.Input((4,)), SpVDDense(4), L.Lambda(lambda x: x, name="what"), SpVDDense(2)]
    )
    with pytest.raises(ValueError, match="Lambda 'what'"):
        strip(model)
