"""The package as a user gets it: a wheel in a clean environment."""

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    # A copy, so that neither leftovers of earlier builds nor parallel ones get into it.
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("keras_sparse", "tuner"):
        shutil.copytree(ROOT / name, source / name)
    for name in (
        "keras_sparse_command.py",
        "setup.cfg",
        "setup.py",
        "pyproject.toml",
        "README.md",
        "LICENSE",
    ):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*command, str(source)], check=True, capture_output=True, text=True)
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_both_packages_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    code = {name for name in names if name.endswith(".py")}
    expected = {
        str(Path(target) / path.relative_to(ROOT / source))
        for source, target in (("keras_sparse", "keras_sparse"), ("tuner", "keras_sparse/tuner"))
        for path in (ROOT / source).rglob("*.py")
    }
    assert code == {*expected, "keras_sparse_command.py"}
    assets = {
        f"keras_sparse/tuner/assets/{path.name}" for path in (ROOT / "tuner/assets").iterdir()
    }
    assert len(assets) >= 6 and assets <= set(names)
    assert "keras_sparse/py.typed" in names
    assert {name.split("/")[0].split("-")[0] for name in names} == {
        "keras_sparse",
        "keras_sparse_command.py",
    }


def test_the_wheel_installs_and_imports_in_a_clean_environment(wheel, tmp_path):
    # The dependencies are the ones of this environment: only what the wheel brings is new.
    environment = tmp_path / "clean"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    site = next((environment / "lib").glob("python*/site-packages"))
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--target", str(site)]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True)
    here = ":".join(path for path in sys.path if path.endswith("site-packages"))
    code = (
        "import keras_sparse, keras_sparse.tuner, keras_sparse.layers as layers;"
        "print(keras_sparse.__file__, keras_sparse.tuner.__file__, layers.SpVDDense(3).units)"
    )
    done = subprocess.run(
        [python, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{site}:{here}"},
        check=True,
        capture_output=True,
        text=True,
    )
    package, tuner, units = done.stdout.split()
    assert package == str(site / "keras_sparse" / "__init__.py")
    assert tuner == str(site / "keras_sparse" / "tuner" / "__init__.py")
    assert units == "3"
