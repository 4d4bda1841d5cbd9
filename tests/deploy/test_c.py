import re
import subprocess
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_sparse.deploy import MicroModel, run_on_board, to_c, to_tflite
from keras_sparse.deploy.c import twin
from keras_sparse.deploy.c.boards.known import BOARDS, WARNINGS
from keras_sparse.deploy.c.encoding import FORMATS
from keras_sparse.deploy.c.estimating import streamed_ram, table_bytes
from keras_sparse.deploy.c.integer_graph import UnsupportedError, read_graph
from keras_sparse.footprint import measure, read

from ..needs import require, require_board
from .firmware import flatbuffer_of, images_for, mismatches
from .networks import every_layer, randomised, sampled

L = keras.layers
FAST = 20
ALL = 200


@pytest.mark.parametrize("part", range(4))
def test_random_networks_equal_tflite_micro(part: int) -> None:
    for seed in range(part, FAST, 4):
        assert mismatches(seed) == {"twin": 0, "C": 0}, seed


@pytest.mark.slow
@pytest.mark.parametrize("part", range(12))
def test_many_random_networks_equal_tflite_micro(part: int) -> None:
    for seed in range(FAST + part, ALL, 12):
        assert mismatches(seed) == {"twin": 0, "C": 0}, seed


@pytest.fixture(scope="module")
def network() -> tuple[bytes, np.ndarray, np.ndarray]:
    """A flatbuffer with every kind of layer, images, and TFLite Micro's outputs."""
    rng = np.random.default_rng(1)
    flatbuffer, x = flatbuffer_of(randomised(every_layer(), rng), rng)
    micro = MicroModel(flatbuffer)
    q = images_for(micro, x, rng)
    return flatbuffer, q, micro.predict_int8(q)


def test_overlapping_and_padded_pooling_equal_tflite_micro(tmp_path: Path) -> None:
    image = keras.Input((11, 9, 2))
    x = L.MaxPooling2D(3, strides=2, padding="same")(image)
    x = L.Conv2D(4, 3, padding="same", strides=2, activation="relu6")(x)
    x = L.AveragePooling2D(2, strides=1, padding="same")(x)
    x = L.Conv2D(3, 1, strides=2)(x)
    model = keras.Model(image, L.Dense(3)(L.Flatten()(L.MaxPooling2D(2, strides=1)(x))))
    rng = np.random.default_rng(2)
    flatbuffer, x = flatbuffer_of(model, rng)
    micro = MicroModel(flatbuffer)
    q = images_for(micro, x, rng)
    to_c(flatbuffer, tmp_path / "firmware")
    expected = micro.predict_int8(q)
    np.testing.assert_array_equal(twin.run(read_graph(flatbuffer), q), expected)
    np.testing.assert_array_equal(run_on_board(tmp_path / "firmware", "host", q).outputs, expected)


@pytest.mark.parametrize("encoding", FORMATS)
def test_every_encoding_gives_the_same(
    encoding: str, network: tuple[bytes, np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    flatbuffer, q, expected = network
    firmware = to_c(flatbuffer, tmp_path / "firmware", encoding=encoding)
    assert set(firmware.encodings.values()) == {encoding}
    outputs = run_on_board(firmware.directory, "host", q).outputs
    np.testing.assert_array_equal(outputs, expected)


KERNELS = ("wide", "near", "far")


@pytest.fixture(scope="module")
def kernels() -> tuple[bytes, np.ndarray, np.ndarray]:
    """A network whose convolutions take every way through the kernels, images, and outputs.

    Rows of 13, 11, 6 and 3 outputs; taps that fill whole bytes of a bitmap, and that do not.
    """
    image = keras.Input((26, 26, 1))
    x = L.Conv2D(8, 3, strides=2, padding="same", activation="relu")(image)
    x = L.Conv2D(5, 3, activation="relu")(x)
    x = L.Conv2D(8, 3, padding="same")(x)
    x = L.Conv2D(8, 3, strides=2, padding="same")(x)
    x = L.Conv2D(3, 3, strides=2, padding="same")(x)
    model = keras.Model(image, L.Dense(4)(L.Flatten()(x)))
    rng = np.random.default_rng(3)
    for layer in model.layers:
        if hasattr(layer, "kernel"):
            kernel = layer.kernel.numpy()
            layer.kernel.assign(kernel * (rng.random(kernel.shape) < 0.5))
    flatbuffer, x = flatbuffer_of(model, rng)
    micro = MicroModel(flatbuffer)
    q = images_for(micro, x, rng)[20:30]
    return flatbuffer, q, micro.predict_int8(q)


@pytest.mark.parametrize("encoding", FORMATS)
@pytest.mark.parametrize("board", BOARDS)
def test_every_kernel_on_every_board_equals_tflite_micro(
    board: str, encoding: str, kernels: tuple[bytes, np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    require_board(board)
    flatbuffer, q, expected = kernels
    firmware = to_c(flatbuffer, tmp_path / "firmware", encoding=encoding)
    used = set(re.findall(r"ks_conv_(\w+)\(", (firmware.directory / "model.c").read_text()))
    names = {f"{kernel}_{encoding}" for kernel in KERNELS}
    if encoding == "bitmap":
        names |= {"near_bitmap8", "far_bitmap8"}
    assert used == names
    np.testing.assert_array_equal(run_on_board(firmware.directory, board, q).outputs, expected)


@pytest.mark.parametrize("board", [name for name in BOARDS if name != "host"])
def test_boards_equal_tflite_micro_and_take_what_was_planned(
    board: str, network: tuple[bytes, np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    require_board(board)
    flatbuffer, q, expected = network
    firmware = to_c(flatbuffer, tmp_path / "firmware")
    run = run_on_board(firmware.directory, board, q[:12])
    np.testing.assert_array_equal(run.outputs, expected[:12])
    word = BOARDS[board].word
    assert run.ram == -(-firmware.ram // word) * word
    assert run.tables == -(-firmware.flash // word) * word
    assert 0 < run.stack < 1500 and run.memory == run.ram + run.stack
    assert max(run.cycles, run.instructions) > 10_000
    if board == "uno":  # every cycle belongs to a function; each is rounded
        assert abs(sum(run.functions.values()) - run.cycles) <= len(run.functions)
        assert 0 < run.functions["ks_rescale"] < run.cycles
    else:
        assert run.functions == {}


@pytest.mark.parametrize(
    "prefix, flags, table",
    [
        ("avr-", ("-std=gnu99", "-mmcu=atmega328p"), ".progmem.data"),
        ("arm-none-eabi-", ("-std=c99", "-ffreestanding", "-mcpu=cortex-m0", "-mthumb"), ".rodata"),
    ],
)
def test_sections_have_the_planned_size_and_compilers_do_not_complain(
    prefix: str,
    flags: tuple[str, ...],
    table: str,
    network: tuple[bytes, np.ndarray, np.ndarray],
    tmp_path: Path,
) -> None:
    require(f"{prefix}gcc")
    firmware = to_c(network[0], tmp_path / "firmware")
    command = [f"{prefix}gcc", *flags, *WARNINGS, "-Werror", "-O2", "-c", "model.c", "-o", "x.o"]
    subprocess.run(command, cwd=firmware.directory, check=True)
    done = subprocess.run(
        [f"{prefix}size", "-A", "x.o"],
        cwd=firmware.directory,
        check=True,
        capture_output=True,
        text=True,
    )
    sizes = {name: int(size) for name, size in re.findall(r"^(\.\S+)\s+(\d+)", done.stdout, re.M)}
    word = 1 if prefix == "avr-" else 4
    assert sizes[".bss"] == -(-firmware.ram // word) * word
    assert sizes[table] == -(-firmware.flash // word) * word
    assert sizes[".data"] == 0


def test_the_host_compiler_and_its_sanitizers_do_not_complain(
    network: tuple[bytes, np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    flatbuffer, q, expected = network
    firmware = to_c(flatbuffer, tmp_path / "firmware")
    flags = ["-std=c99", "-O1", *WARNINGS, "-Werror", "-fsanitize=address,undefined"]
    files = ["model.c", "main_host.c", "-o", "host.elf"]
    subprocess.run(["gcc", *flags, *files], cwd=firmware.directory, check=True)
    done = subprocess.run(
        ["./host.elf"], cwd=firmware.directory, input=q.tobytes(), capture_output=True, check=True
    )
    assert not done.stderr
    assert done.stdout == expected.tobytes()


def test_ram_and_flash_are_known_before_quantization(tmp_path: Path) -> None:
    for seed in range(6):
        rng = np.random.default_rng(seed)
        model = sampled(seed)
        firmware = to_c(flatbuffer_of(model, rng)[0], tmp_path / str(seed))
        graph = read(model)
        assert abs(streamed_ram(graph, 8)[0] - firmware.ram) <= 8
        assert (
            measure(model, working_memory="streamed-c").working_memory == streamed_ram(graph, 8)[0]
        )
        assert 0 <= table_bytes(graph, 8) - firmware.flash <= 0.1 * firmware.flash + 32


def test_an_unknown_operator_is_named() -> None:
    image = keras.Input((8, 8, 1))
    model = keras.Model(image, L.Softmax()(L.Dense(3)(L.Flatten()(image))))
    flatbuffer = to_tflite(model, np.random.default_rng(0).normal(size=(9, 8, 8, 1)))
    with pytest.raises(UnsupportedError, match="Received: SOFTMAX"):
        to_c(flatbuffer, "never-written")
    assert not Path("never-written").exists()


def test_bad_input_is_refused_in_a_sentence(
    network: tuple[bytes, np.ndarray, np.ndarray],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flatbuffer, q, _ = network
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    with pytest.raises(FileExistsError, match="directory must be a folder that is empty"):
        to_c(flatbuffer, tmp_path / "full")
    with pytest.raises(ValueError, match="encoding must be None or one of"):
        to_c(flatbuffer, tmp_path / "new", encoding="zip")
    with pytest.raises(ValueError, match="flatbuffer must be"):
        to_c(b"no flatbuffer at all", tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full"]
    to_c(flatbuffer, tmp_path / "new")
    with pytest.raises(ValueError, match="board must be one of"):
        run_on_board(tmp_path / "new", "esp32", q)
    with pytest.raises(ValueError, match="x must be int8 images of shape"):
        run_on_board(tmp_path / "new", "uno", q.astype(np.float32))
    with pytest.raises(FileNotFoundError, match="directory must be a folder of to_c"):
        run_on_board(tmp_path / "full", "uno", q)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="apt install .*gcc-avr"):
        run_on_board(tmp_path / "new", "uno", q)


def test_a_network_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    require_board("uno")
    image = keras.Input((24, 40, 1))
    x = L.Conv2D(40, 3)(image)
    model = keras.Model(image, L.Dense(2)(L.GlobalAveragePooling2D()(L.Conv2D(4, 3)(x))))
    rng = np.random.default_rng(0)
    firmware = to_c(flatbuffer_of(model, rng)[0], tmp_path / "wide")
    with pytest.raises(RuntimeError, match="fit into the 2048 bytes of RAM"):
        run_on_board(firmware.directory, "uno")
    assert run_on_board(firmware.directory, "microbit").memory <= 16 << 10
