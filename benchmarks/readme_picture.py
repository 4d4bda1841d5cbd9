"""Draws the README's picture from the search of the demonstration.

    make demo
    python -m benchmarks.readme_picture

The picture goes to docs/search-front.png; what it shows is printed.
"""

import argparse
from pathlib import Path

from keras_sparse.tuner.plots import plot_front
from keras_sparse.tuner.reading import read_search


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--search", type=Path, default=Path("runs/demo/search"))
    parser.add_argument("--picture", type=Path, default=Path("docs/search-front.png"))
    arguments = parser.parse_args()
    search = read_search(arguments.search)
    plot_front(search, arguments.picture)
    completed = [record for record in search.records if record.status == "completed"]
    print(f"{len(search.records)} trials, {len(completed)} completed; best within the budget:")
    print(search.best)


if __name__ == "__main__":
    main()
