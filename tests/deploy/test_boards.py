"""Boards without Debian's compilers and emulators, and what is read from linked programs."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from keras_sparse.deploy import BoardError, BoardRun, MicroModel, run_on_board, to_c
from keras_sparse.deploy.c.boards import BOARDS, tools
from keras_sparse.deploy.c.boards.elf import sizes
from keras_sparse.deploy.c.boards.known import WARNINGS
from keras_sparse.deploy.c.generating import Firmware

from ..needs import require
from .firmware import flatbuffer_of, images_for
from .networks import every_layer, randomised

CORTEX_M = [name for name, board in BOARDS.items() if board.cpu]


class Case:
    """Firmware with every kind of layer, images, and TFLite Micro's outputs."""

    def __init__(self, folder: Path) -> None:
        rng = np.random.default_rng(1)
        flatbuffer, x = flatbuffer_of(randomised(every_layer(), rng), rng)
        micro = MicroModel(flatbuffer)
        self.images = images_for(micro, x, rng)[20:32]
        self.expected = micro.predict_int8(self.images)
        self.firmware: Firmware = to_c(flatbuffer, folder / "firmware")

    def run(self, board: str) -> BoardRun:
        return run_on_board(self.firmware.directory, board, self.images)


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("boards"))


@pytest.mark.parametrize("board", CORTEX_M)
def test_boards_need_no_root(
    board: str, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # nothing at all is installed
    run = case.run(board)
    np.testing.assert_array_equal(run.outputs, case.expected)
    assert run.ram == -(-case.firmware.ram // 4) * 4
    assert run.tables == -(-case.firmware.flash // 4) * 4
    assert 0 < run.stack < 1500 and run.instructions > 10_000


@pytest.mark.parametrize("board", CORTEX_M)
def test_both_emulators_count_the_same(
    board: str, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = case.run(board)
    which = shutil.which
    monkeypatch.setattr(
        tools.shutil, "which", lambda name: None if name == "qemu-system-arm" else which(name)
    )
    run = case.run(board)
    np.testing.assert_array_equal(run.outputs, expected.outputs)
    assert run.stack == expected.stack
    assert run.flash == expected.flash
    # One counts where a block of instructions begins, the other where the timer is read.
    assert abs(run.instructions / expected.instructions - 1) < 0.02


def test_what_is_missing_is_named(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(tools, "_has_module", lambda name: name != "unicorn")
    with pytest.raises(BoardError, match=r"keras-sparse\[boards\].*Received: no qemu-system-arm$"):
        case.run("microbit")


@pytest.mark.parametrize("board", BOARDS)
def test_sizes_are_those_that_binutils_show(board: str, case: Case, tmp_path: Path) -> None:
    known = BOARDS[board]
    require(f"{known.prefix}size")
    program = tmp_path / "firmware.elf"
    command = (*tools.compiler(known), *WARNINGS, "-o", str(program), "model.c", *known.main)
    folder = case.firmware.directory
    subprocess.run((*command, *known.libraries), cwd=folder, check=True)
    done = subprocess.run(
        (f"{known.prefix}size", str(program)), check=True, capture_output=True, text=True
    )
    shown = tuple(int(word) for word in done.stdout.splitlines()[1].split()[:3])
    assert sizes(program)[:3] == shown
    assert abs(sizes(program).objects["d"] - case.firmware.flash) < 4
