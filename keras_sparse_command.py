"""The `keras-sparse` command: reads its arguments, and only then imports what takes seconds.

TensorFlow's C++ side writes to standard error long before it can be told not to. Here that goes
nowhere, unless `--verbose` is given; messages and errors of Python are shown as always.
"""

import argparse
import os
import sys
from collections.abc import Sequence

_EXAMPLES = """examples:
  keras-sparse demo
  keras-sparse search --data digits --ram 2KB --flash 2KB --trials 40
  keras-sparse search --data photos/ --ram 2KB --flash 16KB --hours 2 --workers 2 --out runs/photos
  keras-sparse report runs/photos
  keras-sparse deploy runs/photos --trial best --board uno --out firmware/

A search that was stopped goes on when the same command is given again.
Exit codes: 0 done, 1 a program error, 2 a mistake in the arguments or data, 130 stopped by Ctrl-C.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = parser().parse_args(words)
    if not options.verbose:
        _silence_libraries()
    from keras_sparse.tuner.cli import run  # takes seconds

    return run(options, words)


def parser() -> argparse.ArgumentParser:
    """The arguments of all subcommands."""
    top = argparse.ArgumentParser(
        prog="keras-sparse",
        description="Finds the most accurate CNN that fits a microcontroller's RAM and flash.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--verbose", action="store_true", help="show TensorFlow's own messages")
    commands = top.add_subparsers(dest="command", required=True, metavar="command")
    _add_search(commands.add_parser("search", parents=[common], help="find networks that fit"))
    _add_report(commands.add_parser("report", parents=[common], help="a search as an HTML file"))
    _add_deploy(
        commands.add_parser("deploy", parents=[common], help="a network found, for a board")
    )
    demo = commands.add_parser("demo", parents=[common], help="all of it in a few minutes")
    demo.add_argument("--out", default="runs/demo", help="folder (default: %(default)s)")
    demo.add_argument("--trials", type=int, default=16, help="default: %(default)s")
    demo.add_argument("--epochs", type=int, default=30, help="default: %(default)s")
    return top


def _add_search(search: argparse.ArgumentParser) -> None:
    search.description = "Searches for networks, or continues an earlier search in the folder."
    search.add_argument(
        "--data",
        help="digits, mnist, cifar10, …; an .npz file with x_train, y_train, x_test, y_test; or a "
        "folder with one folder of images per class",
    )
    search.add_argument("--out", help="folder of the search (default: runs/<data>)")
    search.add_argument("--ram", help='bytes of working memory, such as "2KB"; none: no limit')
    search.add_argument("--flash", help='bytes of the model, such as "16KB"; none: no limit')
    search.add_argument("--accuracy", type=float, help="0 to 1: less is of no interest")
    search.add_argument("--trials", type=int, help="networks to try (default: 100)")
    search.add_argument("--hours", type=float, help="start no trial after so many hours")
    search.add_argument("--workers", type=int, default=1, help="processes (default: %(default)s)")
    search.add_argument("--epochs", type=int, help="of a trial from scratch (default: 20)")
    search.add_argument("--batch-size", type=int, help="examples of a step (default: 128)")
    search.add_argument(
        "--pruning",
        choices=["structured", "unstructured"],
        help="whole feature maps, or single weights (default: structured)",
    )
    search.add_argument("--working-memory", help='how RAM is counted (default: "inputs+weights")')
    search.add_argument("--image-size", help="for a folder of images, such as 32x32 (default)")
    search.add_argument("--colour", action="store_true", default=None, help="keep it in images")
    search.add_argument("--seed", type=int, help="default: 0")


def _add_report(report: argparse.ArgumentParser) -> None:
    report.description = "Writes one HTML file that shows a search; it needs no network."
    report.add_argument("folder", help="of the search, such as runs/digits")
    report.add_argument("--out", help="the file (default: report.html in the folder)")


def _add_deploy(deploy: argparse.ArgumentParser) -> None:
    deploy.description = (
        "Quantizes a network of a search, checks it on TFLite Micro, writes it as C and runs it on "
        "an emulated board."
    )
    deploy.add_argument("folder", help="of the search, such as runs/digits")
    deploy.add_argument("--trial", default="best", help='"best" within the budget, or a number')
    deploy.add_argument("--board", default="uno", help="default: %(default)s")
    deploy.add_argument("--out", default="firmware", help="empty folder (default: %(default)s)")
    deploy.add_argument("--data", help="if it is no longer where the search found it")
    deploy.add_argument("--epochs", type=int, default=5, help="of quantization-aware training")
    deploy.add_argument("--images", type=int, default=50, help="to run on the board")


def _silence_libraries() -> None:
    """What is written to file descriptor 2 goes nowhere; Python's own errors keep theirs."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        shown = os.dup(2)
    except OSError:  # there is none
        return
    sys.stderr = os.fdopen(shown, "w", buffering=1)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    os.close(null)


if __name__ == "__main__":
    sys.exit(main())
