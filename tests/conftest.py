import keras
import pytest


@pytest.fixture(autouse=True)
def _seeded():
    """Every test starts from the same seed and leaves no graph behind."""
    keras.utils.set_random_seed(1)
    yield
    keras.backend.clear_session()
