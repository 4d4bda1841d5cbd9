import inspect

import pytest

from keras_sparse.layers import BCConv2D, SpVDConv2D, SpVDDense

from .cases import arguments, each_layer, each_twin

OWN = {"threshold", "log_variance_initializer", "estimator", "seed", "group_initializer"}


@each_twin
def test_takes_exactly_the_parameters_and_defaults_of_the_keras_layer(layer_class, keras_class):
    ours = inspect.signature(layer_class).parameters
    theirs = inspect.signature(keras_class).parameters
    inherited = [(p.name, p.default, p.kind) for n, p in ours.items() if n not in OWN]
    assert inherited == [(p.name, p.default, p.kind) for p in theirs.values()]
    assert all(ours[n].kind is inspect.Parameter.KEYWORD_ONLY for n in ours if n in OWN)


@each_twin
def test_default_configuration_is_that_of_the_keras_layer(layer_class, keras_class):
    ours = layer_class(*arguments(layer_class), name="x").get_config()
    theirs = keras_class(*arguments(layer_class), name="x").get_config()
    assert {key: value for key, value in ours.items() if key not in OWN} == theirs


@pytest.mark.parametrize(
    "refused", [{"lora_rank": 2}, {"lora_alpha": 2.0}, {"quantization_config": object()}]
)
def test_lora_and_quantization_are_refused(refused):
    with pytest.raises(ValueError, match=next(iter(refused))):
        SpVDDense(3, **refused)


def test_lora_is_refused_by_a_convolution_and_after_building():
    with pytest.raises(ValueError, match="lora_rank"):
        BCConv2D(3, 3, lora_rank=2)
    with pytest.raises(ValueError, match="LoRA"):
        SpVDConv2D(3, 3).enable_lora(2)


@each_layer
@pytest.mark.parametrize("threshold", ["3", None, float("nan"), True, [1.0]])
def test_threshold_must_be_a_number(layer_class, threshold):
    with pytest.raises(ValueError, match="threshold must be a number"):
        layer_class(*arguments(layer_class), threshold=threshold)


def test_threshold_is_checked_on_assignment_too():
    layer = SpVDDense(3)
    with pytest.raises(ValueError, match=r"threshold must be a number.*'high'"):
        layer.threshold = "high"


def test_unknown_estimator_and_initializer_are_named():
    with pytest.raises(ValueError, match="estimator must be one of .*'fast'"):
        SpVDDense(3, estimator="fast")
    with pytest.raises(ValueError, match="log_variance_initializer"):
        SpVDDense(3, log_variance_initializer=None)
