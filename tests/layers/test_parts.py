import keras
import numpy as np
import pytest

from keras_sparse.layers import BCConv2D, BCSeparableConv2D
from keras_sparse.layers.parts import VariablePart


def test_parts_share_one_variable_and_assign_only_themselves():
    layer = BCConv2D(3, 2)
    layer.build((None, 8, 8, 4))
    parts = layer.named_variables()
    assert [v.name for v in layer.trainable_variables] == ["kernel", "bias", "posterior"]
    before = {name: np.array(part) for name, part in parts.items()}
    new = np.arange(3.0)
    parts["kernel_group_mean"].assign(new)
    for name, part in parts.items():
        expected = new if name == "kernel_group_mean" else before[name]
        np.testing.assert_array_equal(np.array(part), expected)
    assert sum(p.size for p in parts.values() if isinstance(p, VariablePart)) == 48 + 3 * 3


def test_a_value_of_another_shape_is_refused():
    layer = BCSeparableConv2D(3, 2)
    layer.build((None, 8, 8, 4))
    part = layer.named_variables()["depthwise_kernel_group_mean"]
    assert part.shape == (4, 1)
    with pytest.raises(ValueError, match=r"shape \(4, 1\) of depthwise_kernel_group_mean"):
        part.assign(np.zeros(4))


def test_initializers_are_those_of_the_arguments():
    layer = BCConv2D(
        3,
        2,
        log_variance_initializer=keras.initializers.RandomNormal(-7.0, 0.1, seed=1),
        group_initializer=2.0,
    )
    layer.build((None, 8, 8, 4))
    values = {name: np.array(part) for name, part in layer.named_variables().items()}
    assert np.all(values["kernel_group_mean"] == 2.0)
    for name in ("kernel_log_variance", "bias_log_variance", "kernel_group_log_variance"):
        assert abs(values[name].mean() + 7.0) < 0.2
        assert values[name].std() > 0.0
