"""The results page's words on searches beside each other: random, size alone, without pruning."""

from collections.abc import Iterable

from benchmarks.tables_comparisons import AblationFacts, ablation_of, memory_of, random_facts
from benchmarks.tables_places import Places


def other_part(names: Iterable[str], places: Places) -> str:
    """The section of the page.

    Args:
        names: Of the data sets.
        places: Folders of the searches.
    """
    lines = [line for data in names for line in _lines_of(data, places)]
    lines.append(
        "- LogNNet (Izotov et al., 2021), published, on an Arduino Uno: 82 % on MNIST at about 7 s "
        "an image. What a CNN of this project does there: `python -m benchmarks.uno --run mnist`."
    )
    ablation = ablation_of(places)
    if ablation is not None:
        lines += ["", *_ablation_lines(ablation)]
    return "\n".join(["## Other comparisons\n", *lines, ""])


def _lines_of(data: str, places: Places) -> list[str]:
    lines = []
    for table in (1, 2):
        facts = random_facts(data, table, places)
        if facts is not None:
            lines.append(
                f"- {data}, table {table}: hypervolume {facts[0]:.4f} against {facts[1]:.4f} "
                f"of random configurations, after {facts[2]} trials each, the same space, "
                "training and first networks. "
                f"`python -m benchmarks.tables --table {table} --data {data} --variant random`"
            )
    memory = memory_of(data, places)
    if memory is not None:
        lines.append(
            f"- {data}, the paper's first figure: networks of the front with at least "
            f"{memory.least_accuracy:.0%} on validation take {memory.median[0]:,.0f} bytes of "
            f"working memory in the median (least {memory.least[0]:,.0f}) where it is an "
            f"objective, {memory.median[1]:,.0f} ({memory.least[1]:,.0f}) where size alone is, "
            f"after {memory.trials} trials each. "
            f"`python -m benchmarks.tables --table 2 --data {data} --variant size`"
        )
    return lines


def _ablation_lines(ablation: AblationFacts) -> list[str]:
    def cells(sizes: tuple[float | None, ...]) -> str:
        return " | ".join("not reached" if size is None else f"{size:,.0f}" for size in sizes)

    return [
        "Parameters of the smallest network of a search with so much on validation, with and "
        f"without pruning: median of {len(ablation.fronts[0])} seeds, after the same number of "
        "short trials on 10,000 MNIST images. The paper reports about 80 times fewer with pruning, "
        "after 325 trials in its wider space. `python -m benchmarks.tables --ablation`\n",
        f"| pruning | {' | '.join(f'{accuracy:.0%}' for accuracy in ablation.accuracies)} |",
        f"| --- |{' --- |' * len(ablation.accuracies)}",
        f"| with | {cells(ablation.smallest[0])} |",
        f"| without | {cells(ablation.smallest[1])} |",
    ]
