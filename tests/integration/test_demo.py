"""The demonstration, with fewer trials and epochs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_demo_goes_from_data_to_board_and_ends_with_its_report(tmp_path):
    words = ["demo", "--out", str(tmp_path / "demo"), "--trials", "4", "--epochs", "2"]
    program = [sys.executable, "-m", "keras_sparse_command", *words]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = tmp_path / "demo" / "search" / "report.html"
    assert done.stdout.rstrip().endswith(str(report))
    assert "* the most accurate within the budget" in done.stdout
    assert re.search(r"^board mismatches +0$", done.stdout, re.M)
    assert "tflite micro arena bytes" in done.stdout
    assert '"board": "uno"' in report.read_text()
    assert (tmp_path / "demo" / "firmware" / "c" / "model.c").is_file()
