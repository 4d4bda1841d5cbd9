import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from keras_sparse.tuner import cli

import keras_sparse_command
from keras_sparse.files import read_arrays, write_json

from .folders import write_folder

ROOT = Path(__file__).parents[2]
QUICK = ["--trials", "2", "--epochs", "1"]


def run(*words):
    """The command in this process, whose standard error stays as it is."""
    words = list(map(str, words))
    return cli.run(keras_sparse_command.parser().parse_args(words), words)


def command(*words, **kwargs):
    """The command as a user's shell starts it."""
    program = [sys.executable, "-m", "keras_sparse_command", *map(str, words)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TF_CPP")}
    return subprocess.run(
        program, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, **kwargs
    )


@pytest.fixture(scope="module")
def pixels(tmp_path_factory):
    """A data file so small that a trial takes a moment."""
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 2
    images = rng.integers(0, 100, (60, 6, 6), dtype=np.uint8) + labels[:, None, None].astype("u1")
    path = tmp_path_factory.mktemp("data") / "pixels.npz"
    np.savez(path, x_train=images, y_train=labels, x_test=images[:8], y_test=labels[:8])
    return path


@pytest.fixture(scope="module")
def searched(pixels, tmp_path_factory):
    """The folder of a search that the command made in a pipe, and what it printed."""
    out = tmp_path_factory.mktemp("runs") / "x"
    budget = ["--ram", "2KB", "--flash", "16KB"]
    return out, command("search", "--data", pixels, *budget, "--out", out, *QUICK)


@pytest.mark.xdist_group("search command")
def test_in_a_pipe_it_is_quiet_and_has_no_bar(searched):
    out, done = searched
    assert done.returncode == 0, done.stderr
    assert "\r" not in done.stdout
    assert len(re.findall(r"^trial \d/2 ", done.stdout, re.M)) == 2
    assert "2 trials" in done.stdout
    assert (out / "report.html").is_file() and str(out / "report.html") in done.stdout
    lines = done.stderr.splitlines()
    assert all(line.startswith("keras-sparse: ") for line in lines), lines


@pytest.mark.xdist_group("search command")
def test_the_folder_alone_continues_a_search(searched, tmp_path, capsys):
    out, _ = searched
    first = {path: path.stat().st_mtime_ns for path in out.glob("trial_*/result.json")}
    assert run("search", "--out", out, "--trials", "3") == 0
    assert "3 trials" in capsys.readouterr().out
    assert len(list(out.glob("trial_*/result.json"))) == 3
    assert {path: path.stat().st_mtime_ns for path in first} == first
    assert run("report", out, "--out", tmp_path / "page.html") == 0
    assert capsys.readouterr().out == f"{tmp_path / 'page.html'}\n"
    assert "pixels.npz" in (tmp_path / "page.html").read_text()


@pytest.mark.xdist_group("search command")
def test_what_would_make_trials_incomparable_is_refused(searched, capsys):
    out, _ = searched
    assert run("search", "--out", out, "--seed", "3") == 2
    assert "--seed 0, which cannot change" in capsys.readouterr().err
    assert run("search", "--out", out, "--data", "digits") == 2
    assert "holds a search with --data" in capsys.readouterr().err


def test_no_trial_starts_after_the_hours_are_over(pixels, tmp_path, capsys):
    words = ["search", "--data", pixels, "--out", tmp_path / "x", "--trials", "50"]
    assert run(*words, "--hours", "1e-9") == 0
    assert "0 trials" in capsys.readouterr().out
    assert run(*words, "--hours", "-1") == 2
    assert "--hours must be more than 0. Received: -1" in capsys.readouterr().err


def test_a_mistake_is_one_line_and_exit_code_2(tmp_path):
    done = command("search", "--data", "nothing", "--out", tmp_path / "x")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("keras-sparse: name must be one of digits, mnist")
    assert not list(tmp_path.iterdir())


def test_help_says_what_to_type_without_loading_anything():
    code = (
        "import sys, keras_sparse_command as c\n"
        "try: c.main(['search', '--help'])\n"
        "except SystemExit as end: print(end.code, 'tensorflow' in sys.modules)"
    )
    program = [sys.executable, "-c", code]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("0 False\n")
    for word in ("--data", "--ram", "--flash", "--trials", "--hours", "--workers", "--out"):
        assert word in done.stdout
    text = keras_sparse_command.parser().format_help()
    for word in ("search", "report", "deploy", "demo", "keras-sparse report runs/photos"):
        assert word in text


def test_a_reader_that_has_enough_is_no_error(tmp_path, monkeypatch):
    write_folder(tmp_path / "x", 2)

    def closed(*_):
        raise BrokenPipeError

    monkeypatch.setattr(cli, "write_report", closed)
    monkeypatch.setattr(os, "dup2", lambda *_: None)
    assert run("report", tmp_path / "x") == 0


def test_ctrl_c_says_how_to_go_on(tmp_path, monkeypatch, capsys):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "write_report", stopped)
    assert run("report", tmp_path) == 130
    assert "the same command goes on" in capsys.readouterr().err


def test_files_that_cannot_be_written_are_named(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert run("search", "--data", "digits", "--out", tmp_path / "file" / "x") == 2
    assert re.search(r"can be written: choose another.*Not a directory", capsys.readouterr().err)
    assert "may not be written" in cli._sentence(PermissionError(13, "Permission denied", "/x"))


def test_a_broken_command_file_is_not_obeyed(tmp_path, capsys):
    write_json(tmp_path / "x" / "command.json", ["data"])
    assert run("search", "--out", tmp_path / "x") == 2
    assert "--data must be given for a new search" in capsys.readouterr().err


@pytest.mark.slow
def test_two_workers_on_one_machine(pixels, tmp_path, capfd):
    assert run("search", "--data", pixels, *QUICK, "--workers", "2", "--out", tmp_path / "x") == 0
    assert "2 trials, 0 failed" in capfd.readouterr().out
    assert len(list(tmp_path.glob("x/trial_*/result.json"))) == 2
    for path in tmp_path.glob("x/trial_*/posterior.npz"):
        assert read_arrays(path)
