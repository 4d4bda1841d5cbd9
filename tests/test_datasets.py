import numpy as np
import pytest
from PIL import Image

from keras_sparse import datasets


def write(path, **changes):
    rng = np.random.default_rng(0)
    arrays = {
        "x_train": rng.integers(0, 256, (60, 6, 5), dtype=np.uint8),
        "y_train": np.arange(60) % 3,
        "x_test": rng.integers(0, 256, (9, 6, 5), dtype=np.uint8),
        "y_test": np.arange(9) % 3,
    }
    arrays.update(changes)
    np.savez(path, **{key: value for key, value in arrays.items() if value is not None})
    return path


def test_digits_are_split_stratified_and_normalised():
    data = datasets.load("digits")
    assert [len(data.x_train), len(data.x_val), len(data.x_test)] == [1257, 180, 360]
    assert data.input_shape == (8, 8, 1)
    assert data.num_classes == 10
    assert data.x_train.mean() == pytest.approx(0, abs=1e-3)
    assert data.x_train.std() == pytest.approx(1, abs=1e-3)
    assert set(np.bincount(data.y_val)) <= {17, 18, 19}
    again = datasets.load("digits")
    np.testing.assert_array_equal(data.x_val, again.x_val)


def test_a_users_file(tmp_path):
    data = datasets.load(write(tmp_path / "mine.npz"))
    assert data.input_shape == (6, 5, 1)
    assert [len(data.x_train), len(data.x_val), len(data.x_test)] == [54, 6, 9]
    assert data.class_names == ("0", "1", "2")
    # The pixels come back from the normalisation.
    with np.load(tmp_path / "mine.npz") as file:
        pixels = data.x_test[..., 0] * data.deviation + data.mean
        np.testing.assert_allclose(pixels, file["x_test"], atol=1e-3)


def test_a_users_file_with_its_own_validation_colours_and_names(tmp_path):
    rng = np.random.default_rng(0)
    path = write(
        tmp_path / "mine.npz",
        x_train=rng.integers(0, 256, (60, 6, 5, 3)),
        x_test=rng.integers(0, 256, (9, 6, 5, 3)),
        x_val=rng.integers(0, 256, (4, 6, 5, 3)),
        y_val=np.array([0, 1, 2, 0]),
        y_train=(np.arange(60) % 3)[:, None],
        classes=np.array(["cat", "dog", "owl"]),
    )
    data = datasets.load(path)
    assert data.mean.shape == (3,)
    assert len(data.x_val) == 4
    assert len(data.x_train) == 60
    assert data.class_names == ("cat", "dog", "owl")


def test_groups_stay_together(tmp_path):
    labels = np.repeat(np.arange(3), 20)
    groups = np.arange(60) // 4
    marks = np.broadcast_to(groups[:, None, None], (60, 6, 5)).astype(np.uint8)
    data = datasets.load(
        write(tmp_path / "g.npz", x_train=marks, y_train=labels, group_train=groups)
    )
    number = lambda x: set(np.round(x[:, 0, 0, 0] * data.deviation[0] + data.mean[0]).astype(int))  # noqa: E731
    assert len(data.x_val) > 0
    assert not number(data.x_train) & number(data.x_val)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_test": None}, "must hold the arrays .* Missing: y_test"),
        (
            {"x_train": np.zeros((0, 6, 5)), "y_train": np.zeros(0, int)},
            "train set must not be empty",
        ),
        ({"x_train": np.full((60, 6, 5), np.nan)}, "must be finite. Received: 1800 NaN"),
        ({"y_test": np.arange(9)}, "labels of .* must be 0 to 2. Received: labels from 0 to 8"),
        ({"y_train": np.arange(60) % 3 - 1}, "Received: labels from -1 to"),
        ({"y_train": np.zeros(60)}, r'whole class numbers.*astype\("int32"\).*float64'),
        ({"y_train": np.arange(59) % 3}, "one label per image. Received: 60 images and 59 labels"),
        ({"x_train": np.zeros((60, 30)), "x_test": np.zeros((9, 30))}, "must have the shape"),
        ({"x_train": np.full((60, 6, 5), "a")}, "images of numbers"),
        ({"y_train": np.array(["a", "b", "c"] * 20)}, "labels y_train .* whole class numbers"),
        ({"x_val": np.zeros((3, 6, 5))}, "x_val and y_val together"),
        ({"x_test": np.zeros((9, 7, 5))}, "must have one shape"),
        ({"group_train": np.arange(30)}, "one number per training image. Received: 30 for 60"),
        ({"y_train": np.array([0, 1, 2] + [0] * 57)}, "No stratified validation set"),
    ],
)
def test_unusable_files_are_refused_in_one_sentence(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        datasets.load(write(tmp_path / "bad.npz", **changes))


def test_pickled_content_is_never_loaded(tmp_path):
    np.savez(tmp_path / "bad.npz", x_train=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match=r"not a readable \.npz of plain arrays"):
        datasets.load(tmp_path / "bad.npz")
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(ValueError, match=r"not a readable \.npz"):
        datasets.load(tmp_path / "text.npz")


def test_unknown_names_and_missing_files_say_what_to_do(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="name must be one of digits, mnist.*'nonsense'"):
        datasets.load("nonsense")
    with pytest.raises(FileNotFoundError, match="no data file"):
        datasets.load(tmp_path / "absent.npz")
    monkeypatch.setenv(datasets.FOLDER_VARIABLE, str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"put kth_tips_gray48\.npz in the folder"):
        datasets.load("kth-tips")
    monkeypatch.delenv(datasets.FOLDER_VARIABLE)
    with pytest.raises(FileNotFoundError, match=f"set {datasets.FOLDER_VARIABLE}"):
        datasets.load("chars4k")


def test_named_sets_come_from_the_folder_and_binary_ones_share_its_split(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(62), 80)
    marks = rng.integers(0, 256, (len(labels), 4, 4), dtype=np.uint8)
    np.savez(
        tmp_path / "chars4k_20x20gray.npz",
        x_train=marks, y_train=labels, x_test=marks[::9], y_test=labels[::9],
    )  # fmt: skip
    monkeypatch.setenv(datasets.FOLDER_VARIABLE, str(tmp_path))
    data, binary = datasets.load("chars4k"), datasets.load("chars4k-binary")
    assert len(data.x_val) == 500
    np.testing.assert_array_equal(data.x_val, binary.x_val)
    np.testing.assert_array_equal(binary.y_val, data.y_val >= 31)
    assert binary.class_names == ("label<31", "label>=31")


def test_a_failed_download_says_what_to_put_where(monkeypatch):
    def fail():
        raise Exception("URL fetch failure")

    monkeypatch.delenv(datasets.FOLDER_VARIABLE, raising=False)
    source = datasets._SOURCES["mnist"]._replace(download=fail)
    monkeypatch.setitem(datasets._SOURCES, "mnist", source)
    with pytest.raises(FileNotFoundError, match=r"URL fetch failure.*put mnist\.npz"):
        datasets.load("mnist")


@pytest.fixture
def pictures(tmp_path):
    rng = np.random.default_rng(0)
    for number, name in enumerate(("cat", "dog", "owl")):
        for i in range(20 + number):
            pixels = rng.integers(0, 60, (9, 12, 3), dtype=np.uint8) + np.uint8(90 * number)
            path = tmp_path / "pets" / name / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)
    return tmp_path / "pets"


def test_a_folder_of_images_has_one_folder_per_class(pictures):
    (pictures / "cat" / "notes.txt").write_text("not an image")
    (pictures / ".cache").mkdir()
    data = datasets.load(pictures, image_size=(6, 8))
    assert data.class_names == ("cat", "dog", "owl")
    assert data.input_shape == (6, 8, 1)
    assert len(data.x_train) + len(data.x_val) + len(data.x_test) == 63
    assert set(np.bincount(data.y_test)) <= {4, 5}
    # The brightness of an image tells its class, so the labels belong to the images.
    means = data.x_test.mean(axis=(1, 2, 3))
    order = [means[data.y_test == c].mean() for c in range(3)]
    assert order == sorted(order)
    again = datasets.load(pictures, image_size=(6, 8))
    np.testing.assert_array_equal(data.x_test, again.x_test)
    assert datasets.load(pictures, colour=True).input_shape == (32, 32, 3)


def test_a_folder_of_images_may_have_its_own_test_set(pictures, tmp_path):
    split = tmp_path / "split"
    for part in ("train", "test"):
        (split / part).mkdir(parents=True)
    for name in ("cat", "dog"):
        (pictures / name).rename(split / "train" / name)
        (split / "test" / name).mkdir()
        (split / "train" / name / "3.png").rename(split / "test" / name / "3.png")
    data = datasets.load(split)
    assert len(data.x_test) == 2
    (split / "test" / "cow").mkdir()
    with pytest.raises(ValueError, match="same classes in train and test.*'cow'"):
        datasets.load(split)


def test_a_folder_of_images_that_is_not_one_says_what_to_do(pictures, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="one folder of images per class.*Received: 0 folders"):
        datasets.load(tmp_path / "empty")
    (pictures / "dog" / "7.png").write_bytes(b"no picture")
    with pytest.raises(ValueError, match=r"7\.png' must be an image: remove or replace it"):
        datasets.load(pictures)
    (pictures / "ant").mkdir()
    with pytest.raises(ValueError, match="ant' must hold at least 10 images.*Received: 0"):
        datasets.load(pictures)
