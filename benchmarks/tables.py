"""The paper's tables on real data: searches, long training of their fronts, baselines, pages.

    python -m benchmarks.tables --table 1 --data mnist                # everything of a row set
    python -m benchmarks.tables --table 2 --data mnist --seconds 3600 # an hour of it
    python -m benchmarks.tables --table 2 --data mnist --variant random
    python -m benchmarks.tables --table 2 --data mnist --part final --backwards  # a second core
    python -m benchmarks.tables --table 2 --data mnist --effects      # what each option brings
    python -m benchmarks.tables --ablation                            # with and without pruning
    python -m benchmarks.tables --page                                # RESULTS.md, README, figures

Every command goes on where it was stopped (`--anew` only the first time), also on another machine:
what it needs is committed under benchmarks/results/tables. Tables 2 and 3 come from one search. A
command does in this order: the search (`--part search`); baselines, the sizes of which are rows to
stand against (`baselines`); heats and longer training of the members of the front that validation
chooses (`final`); the test set, once (`test`). What is set to what, and why:
`benchmarks/tables_settings.py`.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.tables_baselines import run_baselines
from benchmarks.tables_effects import measure_effects
from benchmarks.tables_front import begin_anew, finish_front, look_at_test, members_of
from benchmarks.tables_page import write_page
from benchmarks.tables_places import Places
from benchmarks.tables_rows import write_firmware
from benchmarks.tables_search import search
from benchmarks.tables_settings import (
    ABLATION_SEEDS,
    VARIANTS,
    Settings,
    ablation_settings,
    settings_of,
)
from benchmarks.tables_state import save_state
from keras_sparse import datasets

PARTS = ("search", "baselines", "final", "test")
DATA = ("mnist", "cifar10-binary", "chars4k", "chars4k-binary", "kth-tips")


class Deadline:
    """Says when the time is over.

    Args:
        seconds: From now on; None for never.
    """

    def __init__(self, seconds: float | None) -> None:
        self.end = float("inf") if seconds is None else time.monotonic() + seconds

    @property
    def left(self) -> float | None:
        """Seconds; None for no end."""
        return None if self.end == float("inf") else max(0.0, self.end - time.monotonic())

    def is_over(self) -> bool:
        """Whether nothing new should be started."""
        return time.monotonic() >= self.end


def run_table(
    settings: Settings,
    data: datasets.Dataset,
    places: Places,
    deadline: Deadline,
    *,
    parts: tuple[str, ...] = PARTS,
    again: bool = False,
    backwards: bool = False,
) -> str:
    """Does the parts of a row set in order; returns the one at which the time was over, or ""."""
    steps: dict[str, Callable[[], bool]] = {
        "search": lambda: search(settings, data, places, deadline.left),
        "final": lambda: finish_front(
            settings, data, places, deadline.is_over, again=again, backwards=backwards
        ),
        "test": lambda: _test(settings, data, places, again),
        "baselines": lambda: run_baselines(data, places, deadline.is_over),
        "effects": lambda: measure_effects(settings, data, places, deadline.is_over),
    }
    for part in parts:
        if not steps[part]():
            return part
    return ""


def _test(settings: Settings, data: datasets.Dataset, places: Places, again: bool) -> bool:
    if again or not (places.state(settings) / "test.json").is_file():
        look_at_test(settings, data, places, again=again)
        write_firmware(settings, places)
        trained = [record["trial"] for record in members_of(settings, places).values()]
        save_state(places.folder(settings), places.state(settings), trained)
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--table", type=int, choices=(1, 2, 3))
    parser.add_argument("--data", choices=DATA)
    parser.add_argument("--variant", choices=VARIANTS, default="main", help="which search")
    parser.add_argument("--part", choices=PARTS, help="only this one; the default is all")
    parser.add_argument("--seconds", type=float, help="after so many nothing new is started")
    parser.add_argument(
        "--again", action="store_true", help="new rows, and another look at the test set"
    )
    parser.add_argument(
        "--backwards", action="store_true", help="part final from its end, beside another process"
    )
    parser.add_argument(
        "--anew",
        nargs="?",
        choices=("members", "search"),
        const="members",
        help="choose and train all members anew; with `search` after a new search",
    )
    parser.add_argument("--ablation", action="store_true", help="with and without pruning")
    parser.add_argument("--effects", action="store_true", help="long training without each option")
    parser.add_argument("--page", action="store_true", help="write the results page and figures")
    parser.add_argument("--runs", type=Path, default=Places().runs, help="folder of the searches")
    arguments = parser.parse_args()
    places, deadline = Places(runs=arguments.runs), Deadline(arguments.seconds)
    if arguments.page:
        print(write_page(places))
    elif arguments.ablation:
        mnist = datasets.load("mnist")
        for seed in ABLATION_SEEDS:
            for pruned in (True, False):
                if not search(ablation_settings(pruned, seed), mnist, places, deadline.left):
                    raise SystemExit("The time is over: the same command goes on.")
    elif arguments.table is None or arguments.data is None:
        parser.error("--table and --data, or --ablation, or --page must be given")
    else:
        settings = settings_of(arguments.data, arguments.table, arguments.variant)
        # The other searches are compared by their fronts on validation data.
        everything = PARTS if arguments.variant == "main" else PARTS[:1]
        parts = (arguments.part,) if arguments.part else everything
        parts = ("effects",) if arguments.effects else parts
        if arguments.backwards and parts != ("final",):
            parser.error(f"--backwards is for --part final. Received: {', '.join(parts)}")
        if arguments.anew:
            begin_anew(settings, places, search=arguments.anew == "search")
        left = run_table(
            settings,
            datasets.load(arguments.data),
            places,
            deadline,
            parts=parts,
            again=arguments.again,
            backwards=arguments.backwards,
        )
        print(f"The time is over in part {left}: the same command goes on." if left else "Done.")


if __name__ == "__main__":
    main()
