import keras
import numpy as np
import pytest
from keras_sparse.tuner.hypermodel import SparseCNN

from benchmarks.lenet import lenet5
from keras_sparse import measure, sparsify, strip
from keras_sparse.footprint import memory_models, read, register_memory_model
from tests.footprint.brute_force import count

L = keras.layers


def filled(model: keras.Model, zeros: float = 0.0) -> keras.Model:
    """All parameters random, a share of the kernels' zero."""
    rng = np.random.default_rng(0)
    for layer in model.layers:
        for variable in layer.weights:
            values = rng.uniform(0.5, 1.0, variable.shape)
            if "kernel" in variable.name:
                values *= rng.random(variable.shape) >= zeros
            variable.assign(values)
    return model


@pytest.fixture
def lenet():
    return filled(lenet5(L.Conv2D, L.Dense))


def test_lenet_5_by_hand(lenet):
    footprint = measure(lenet)
    # 20·25 + 20, 50·20·25 + 50, 800·500 + 500, 500·10 + 10
    assert [n.parameters for n in footprint.nodes if n.parameters] == [520, 25_050, 400_500, 5_010]
    assert footprint.parameters == footprint.nonzeros == footprint.model_size == 431_080
    # 24²·500, 8²·25 000, 400 000, 5 000
    assert footprint.macs == 288_000 + 1_600_000 + 400_000 + 5_000
    # Largest layer: 800 inputs and 400 500 parameters.
    assert footprint.working_memory == 401_300
    # Pooling: 24·24·20 in, 12·12·20 out.
    by_outputs = measure(lenet, working_memory="inputs+outputs")
    assert by_outputs.working_memory == by_outputs.live_memory == 14_400
    assert [n.working_memory for n in by_outputs.nodes] == [
        12_304,
        14_400,
        6_080,
        4_000,
        1_300,
        510,
    ]
    assert measure(lenet, bits=4).model_size == 431_080 // 2
    assert measure(lenet, bias_bits=32).dense_bytes == 431_080 + 3 * (20 + 50 + 500 + 10)


def test_pruned_lenet_counts_values_and_indices():
    model = filled(lenet5(L.Conv2D, L.Dense), zeros=0.95)
    footprint = measure(model)
    zeros = sum(int(np.sum(layer.kernel.numpy() == 0)) for layer in model.layers if layer.weights)
    assert footprint.nonzeros == 431_080 - zeros
    assert footprint.before.nonzeros == 431_080
    assert footprint.model_size < footprint.sparse_bytes < footprint.dense_bytes
    fc1 = next(node for node in footprint.nodes if node.name == "fc1")
    assert 2 * 20_000 < fc1.sparse_bytes < 4 * 20_000
    assert footprint.sparse_macs < 0.1 * footprint.macs


def test_the_image_is_counted_beside_the_papers_way():
    model = keras.Sequential(
        [keras.Input((28, 28, 1)), L.MaxPooling2D(4), L.Conv2D(2, 3), L.Flatten(), L.Dense(2)]
    )
    footprint = measure(filled(model))
    assert footprint.working_memory == max(49 + 20, 50 + 102)
    assert footprint.working_memory_with_image == 784
    assert footprint.live_memory == 784 + 49
    assert [node.prepares_image for node in footprint.nodes] == [True, False, False]


def test_batch_normalization_folds_where_it_can():
    inputs = keras.Input((6, 6, 2))
    x = L.Conv2D(4, 3, use_bias=False)(inputs)
    folded = L.BatchNormalization()(x)
    y = L.Conv2D(4, 3, activation="relu")(inputs)
    kept = L.BatchNormalization(name="kept")(y)  # after an activation it is a layer of its own
    model = filled(keras.Model(inputs, L.Add()([folded, kept])))
    names = [op.name for op in read(model).operators]
    assert len(names) == 4 and "kept" in names
    assert measure(model).parameters == 2 * (4 * 18 + 4) + 8


def test_folded_weights_compute_the_same():
    model = filled(
        keras.Sequential(
            [keras.Input((5, 5, 2)), L.Conv2D(3, 3, use_bias=False), L.BatchNormalization()]
        )
    )
    kernel, bias = (w.values for w in read(model).operators[0].weights)
    x = np.random.default_rng(1).normal(size=(2, 5, 5, 2)).astype("float32")
    expected = keras.ops.conv(x, kernel.astype("float32")) + bias
    np.testing.assert_allclose(model(x, training=False), expected, rtol=1e-4, atol=1e-4)


def test_a_merge_counts_both_inputs_and_lives_as_long_as_it_is_needed():
    inputs = keras.Input((4, 4, 1), name="image")
    a = L.Conv2D(2, 1, name="a")(inputs)
    b = L.Conv2D(2, 1, name="b")(a)
    model = filled(keras.Model(inputs, L.Add(name="sum")([a, b])))
    nodes = {n.name: n for n in measure(model).nodes}
    assert nodes["sum"].working_memory == 64
    live = {n.name: n.working_memory for n in measure(model, working_memory="live").nodes}
    assert live == {"a": 16 + 32, "b": 32 + 32, "sum": 96}


def test_activation_of_a_tensor_that_others_read_needs_its_own_memory():
    inputs = keras.Input((4, 4, 1))
    a = L.Conv2D(2, 1)(inputs)
    model = filled(keras.Model(inputs, L.Add()([a, L.ReLU(name="copy")(a)])))
    assert "copy" in [op.name for op in read(model).operators]


def test_shared_and_nested_layers_are_stored_once():
    inner = keras.Sequential([keras.Input((4,)), L.Dense(4, name="inner")], name="nested")
    inputs = keras.Input((4,))
    model = filled(keras.Model(inputs, inner(inner(inputs))))
    footprint = measure(model)
    assert footprint.parameters == 20
    assert footprint.macs == 32
    assert [n.name for n in footprint.nodes] == ["nested/inner", "nested#2/inner"]


def test_bc_before_and_after():
    plain = filled(lenet5(L.Conv2D, L.Dense))
    model = sparsify(plain, "bc")
    for layer in model.layers:
        if hasattr(layer, "threshold"):
            layer.threshold = 100.0
    conv2 = model.get_layer("conv2")
    conv2.group_means()[0].assign(np.where(np.arange(50) < 10, 1.0, 1e-6))
    conv2.threshold = 3.0
    small = strip(model)
    footprint = measure(small, before=model)
    assert footprint.before.parameters == 431_080
    # 10 of 50 maps are left: 520 + 10·(500 + 1) + 160·500 + 500 + 5010
    assert footprint.parameters == measure(small).parameters == 91_040
    assert "conv2" in str(footprint)
    with pytest.raises(ValueError, match="strip"):
        measure(model)


@pytest.mark.parametrize("shape", [(8, 8, 1), (28, 28, 1), (20, 12, 3)])
@pytest.mark.parametrize("space", ["paper", "extended"])
def test_a_thousand_random_configurations_against_brute_force(space, shape):
    model = SparseCNN(shape, 10, space=space)
    rng = np.random.default_rng(5)
    for _ in range(170):
        configuration = model.sample(rng)
        graph = model.graph(configuration)
        expected = count(configuration, shape, 10)
        for name in ("inputs+weights", "inputs+outputs"):
            footprint = measure(graph, working_memory=name)
            assert footprint.working_memory == expected[name]
            assert footprint.working_memory_with_image == expected[f"{name} with image"]
        assert footprint.parameters == expected["parameters"]
        assert footprint.macs == expected["macs"]


def test_models_of_memory_by_name_and_function(lenet):
    def constant(graph, bits):
        return [7] * len(graph.operators)

    assert measure(lenet, working_memory=constant).working_memory == 7
    register_memory_model("seven", constant)
    assert "seven" in memory_models()
    assert measure(lenet, working_memory="seven").memory_model == "seven"


def test_bad_input(lenet):
    with pytest.raises(ValueError, match="working_memory must be one of .*'nothing'"):
        measure(lenet, working_memory="nothing")
    with pytest.raises(ValueError, match="bits must be .* Received: 0"):
        measure(lenet, bits=0)
    with pytest.raises(TypeError, match="takes a Keras model"):
        measure(3)
    recurrent = keras.Sequential([keras.Input((4, 3)), L.LSTM(2, name="memory")])
    with pytest.raises(ValueError, match="LSTM .* 'memory'"):
        measure(recurrent)
    free = keras.Sequential([keras.Input((None, None, 1)), L.Conv2D(1, 1)])
    with pytest.raises(ValueError, match="fixed size"):
        measure(free)


def test_layers_of_the_same_name_in_nested_models_are_different():
    a = keras.Sequential([keras.Input((8,)), L.Dense(16, name="d")], name="a")
    b = keras.Sequential([keras.Input((16,)), L.Dense(4, name="d")], name="b")
    inputs = keras.Input((8,))
    assert measure(filled(keras.Model(inputs, b(a(inputs))))).parameters == 8 * 16 + 16 + 16 * 4 + 4


def test_normalization_behind_a_view_of_another_shape_is_a_layer_of_its_own():
    for filters, parameters in ((1, 19 + 32), (3, 57 + 96)):
        model = keras.Sequential(
            [keras.Input((6, 6, 2)), L.Conv2D(filters, 3), L.Flatten(), L.BatchNormalization()]
        )
        assert measure(filled(model)).parameters == parameters
    model = keras.Sequential(
        [keras.Input((6, 6, 2)), L.Conv2D(3, 3), L.Dropout(0.5), L.BatchNormalization()]
    )
    assert measure(filled(model)).parameters == 57


def test_what_a_view_hides_is_still_read():
    inputs = keras.Input((4, 4, 1))
    for after in (L.ReLU(), L.BatchNormalization()):
        c = L.Conv2D(2, 1)(inputs)
        model = filled(keras.Model(inputs, L.Add(name="sum")([c, after(L.Dropout(0.5)(c))])))
        nodes = {n.name: n for n in measure(model).nodes}
        assert nodes["sum"].working_memory == 64
        assert measure(model).live_memory == 96


def test_a_convolution_before_two_normalizations_is_stored_once_and_not_folded():
    conv = L.Conv2D(2, 3, use_bias=False)
    a, b = keras.Input((6, 6, 1)), keras.Input((6, 6, 1))
    norms = [L.BatchNormalization()(conv(x)) for x in (a, b)]
    assert measure(filled(keras.Model([a, b], L.Add()(norms)))).parameters == 18 + 2 * 4


def test_channels_first_normalization_folds_along_its_channels():
    for axis, parameters in ((1, 4 * 27 + 4), (-1, 4 * 27 + 4 + 8)):
        model = keras.Sequential(
            [
                keras.Input((3, 6, 6)),
                L.Conv2D(4, 3, data_format="channels_first"),
                L.BatchNormalization(axis=axis),
            ]
        )
        assert measure(filled(model)).parameters == parameters


def test_nested_sparse_layers_are_refused():
    inner = sparsify(keras.Sequential([keras.Input((8,)), L.Dense(4, name="hidden")]), "spvd")
    inputs = keras.Input((8,))
    with pytest.raises(ValueError, match="strip.* 'hidden'"):
        measure(keras.Model(inputs, inner(inputs)))
