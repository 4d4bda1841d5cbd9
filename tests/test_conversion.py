import keras
import numpy as np
import pytest

from keras_sparse import KLAnnealing, sparsify, strip
from keras_sparse.counting import sparse_layers
from keras_sparse.layers import BCDense, BCMixin, SpVDConv2D, SpVDDense, SpVDMixin
from tests.layers.cases import images, labels, loss

L = keras.layers


def plain_model() -> keras.Model:
    inputs = keras.Input((6, 6, 4))
    x = L.Conv2D(8, 3, padding="same", activation="relu", kernel_regularizer="l2", name="conv")(
        inputs
    )
    x = L.BatchNormalization(name="norm")(x)
    y = L.SeparableConv2D(8, 3, padding="same", depth_multiplier=2, name="separable")(x)
    x = L.Add()([x, L.ReLU()(y)])
    x = L.DepthwiseConv2D(3, name="depthwise")(x)
    x = L.Flatten()(x)
    return keras.Model(inputs, L.Dense(3, name="logits")(x), name="net")


def trained_model() -> keras.Model:
    model = plain_model()
    model.compile("adam", loss())
    model.fit(images(), labels(), epochs=3, verbose=0)
    return model


@pytest.mark.parametrize(("method", "mixin"), [("spvd", SpVDMixin), ("bc", BCMixin)])
def test_predicts_as_before_and_carries_everything_over(method, mixin):
    plain = trained_model()
    before = plain.get_weights()
    model = sparsify(plain, method, threshold=1e9)
    assert [type(layer).__name__ for layer in model.layers if isinstance(layer, mixin)] == [
        f"{'SpVD' if method == 'spvd' else 'BC'}{kind}"
        for kind in ("Conv2D", "SeparableConv2D", "DepthwiseConv2D", "Dense")
    ]
    assert [layer.name for layer in model.layers] == [layer.name for layer in plain.layers]
    assert model.get_layer("conv").kernel_regularizer is not None
    np.testing.assert_allclose(model(images()), plain(images()), rtol=1e-4, atol=1e-5)
    for old, new in zip(before, plain.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_the_result_trains():
    model = sparsify(trained_model(), "bc", estimator="mirrored")
    model.compile("adam", loss())
    history = model.fit(images(), labels(), verbose=0, callbacks=[KLAnnealing(6, 0, 1)])
    assert np.isfinite(history.history["loss"]).all()


def test_a_group_scale_that_does_not_start_at_one_is_divided_out():
    plain = trained_model()
    start = keras.initializers.RandomNormal(2.0, 0.3, seed=1)
    model = sparsify(plain, "bc", threshold=1e9, group_initializer=start)
    np.testing.assert_allclose(model(images()), plain(images()), rtol=1e-4, atol=1e-5)


def test_sequential_stays_sequential_and_compiled_models_are_taken():
    plain = keras.Sequential([keras.Input((4,)), L.Dense(5), L.Dropout(0.1), L.Dense(3)])
    plain.compile("adam", lambda y, p: keras.ops.mean((y - p) ** 2))
    model = sparsify(plain)
    assert isinstance(model, keras.Sequential)
    assert [type(layer) for layer in model.layers] == [SpVDDense, L.Dropout, SpVDDense]


def test_subclasses_and_skipped_layers_stay_plain():
    class MyDense(L.Dense):
        pass

    plain = keras.Sequential(
        [keras.Input((4,)), MyDense(5, name="mine"), L.Dense(4), L.Dense(3, name="last")]
    )
    model = sparsify(plain, "bc", skip=["last"])
    assert [type(layer) for layer in model.layers] == [MyDense, BCDense, L.Dense]
    np.testing.assert_allclose(model(np.ones((1, 4))), plain(np.ones((1, 4))), rtol=1e-4)


def test_nested_models_and_shared_layers_are_converted_once():
    inner = keras.Sequential([keras.Input((4,)), L.Dense(4, name="inner_dense")], name="inner")
    shared = L.Dense(4, name="shared")
    inputs = keras.Input((4,))
    plain = keras.Model(inputs, L.Dense(2, name="top")(shared(shared(inner(inputs)))))
    model = sparsify(plain, threshold=1e9)
    assert {layer.name for layer in sparse_layers(model)} == {"inner_dense", "shared", "top"}
    np.testing.assert_allclose(model(np.ones((1, 4))), plain(np.ones((1, 4))), rtol=1e-4)
    # Inner layers can be skipped by name, too.
    partly = sparsify(plain, skip="inner_dense")
    assert {layer.name for layer in sparse_layers(partly)} == {"shared", "top"}


def test_already_sparse_layers_are_kept():
    plain = keras.Sequential([keras.Input((6, 6, 4)), SpVDConv2D(3, 3, threshold=1.5), L.Dense(2)])
    model = sparsify(plain, "bc")
    assert type(model.layers[0]) is SpVDConv2D
    assert float(model.layers[0].threshold) == 1.5


def test_adapted_preprocessing_layers_keep_what_they_learned():
    x = np.random.default_rng(0).normal(50, 20, size=(100, 4)).astype("float32")
    normalization = L.Normalization()
    normalization.adapt(x)
    plain = keras.Sequential([keras.Input((4,)), normalization, L.Dense(3)])
    model = sparsify(plain, threshold=1e9)
    np.testing.assert_allclose(model(x), plain(x), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(strip(model)(x), plain(x), rtol=1e-4, atol=1e-4)


def test_a_nested_model_can_be_skipped_as_a_whole():
    inner = keras.Sequential([keras.Input((4,)), L.Dense(4, name="inner_dense")], name="inner")
    plain = keras.Sequential([keras.Input((4,)), inner, L.Dense(2, name="top")])
    assert {layer.name for layer in sparse_layers(sparsify(plain, skip=["inner"]))} == {"top"}


def test_a_layer_shared_with_a_nested_model_stays_one_layer():
    shared = L.Dense(4)
    a, b = keras.Input((4,)), keras.Input((4,))
    inner = keras.Model(a, shared(a))
    plain = keras.Model(b, shared(inner(b)))
    model = sparsify(plain, "bc", threshold=1e9)
    assert len(sparse_layers(model)) == 1
    x = np.ones((1, 4))
    np.testing.assert_allclose(model(x), plain(x), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(strip(model)(x), plain(x), rtol=1e-4, atol=1e-5)


def test_one_seed_gives_every_layer_its_own_noise():
    model = sparsify(
        keras.Sequential([keras.Input((4,)), L.Dense(4), L.Dense(4)]), threshold=1e9, seed=7
    )
    assert [layer.seed for layer in model.layers] == [7, 8]


def test_inputs_keep_their_names_and_structure():
    inputs = {"left": keras.Input((3,), name="left"), "right": keras.Input((3,), name="right")}
    total = L.Add()([L.Dense(2)(inputs["left"]), L.Dense(2)(inputs["right"])])
    plain = keras.Model(inputs, {"sum": total, "half": L.Rescaling(0.5)(total)})
    model = sparsify(plain, threshold=1e9)
    x = {"left": np.ones((1, 3)), "right": np.zeros((1, 3))}
    for key in ("sum", "half"):
        np.testing.assert_allclose(model(x)[key], plain(x)[key], rtol=1e-4)
        np.testing.assert_allclose(strip(model)(x)[key], plain(x)[key], rtol=1e-4)


class OwnCall(keras.Model):
    def call(self, inputs, training=None, mask=None):
        return 2 * super().call(inputs)


def with_own_call() -> keras.Model:
    inputs = keras.Input((4,))
    return OwnCall(inputs, L.Dense(2)(inputs), name="doubled")


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__(name="mine")
        self.dense = L.Dense(2)

    def call(self, x):
        return self.dense(x)


def with_lambda() -> keras.Model:
    return keras.Sequential(
        [keras.Input((4,)), L.Dense(4), L.Lambda(lambda x: x * 2, name="double"), L.Dense(2)]
    )


def with_lora() -> keras.Model:
    model = keras.Sequential([keras.Input((4,)), L.Dense(4, name="adapted")])
    model.layers[0].enable_lora(2)
    return model


@pytest.mark.parametrize(
    ("model", "arguments", "error", "message"),
    [
        (plain_model, {"method": "magic"}, ValueError, r"method must be one of .*'magic'"),
        (Subclassed, {}, ValueError, "subclassed model cannot be read.*'mine'"),
        (with_own_call, {}, ValueError, "subclassed model cannot be read.*'doubled'"),
        (with_lambda, {}, ValueError, "Lambda layer between prunable layers.*'double'"),
        (lambda: keras.Sequential([L.Dense(3)]), {}, ValueError, "takes a built model"),
        (lambda: "net", {}, TypeError, "takes a Keras model. Received: str"),
        (plain_model, {"skip": ["nothing"]}, ValueError, "skip must name layers.*'nothing'"),
        (plain_model, {"threshold": "high"}, ValueError, "threshold must be a number"),
        (with_lora, {}, ValueError, "without LoRA.*'adapted'"),
    ],
)
def test_what_cannot_be_converted_is_said_in_one_sentence(model, arguments, error, message):
    with pytest.raises(error, match=message):
        sparsify(model(), **arguments)


def test_a_lambda_at_the_start_or_end_is_no_obstacle():
    inputs = keras.Input((4,))
    x = L.Dense(3)(L.Lambda(lambda x: x / 255)(inputs))
    model = sparsify(keras.Model(inputs, L.Lambda(lambda x: x + 1)(x)))
    assert len(sparse_layers(model)) == 1
