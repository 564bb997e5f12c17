"""Tables in Markdown, what stands in their cells, and where a page has them."""

from collections.abc import Sequence

from claims_rule import interval


def markdown_table(head: list[str], rows: list[list[str]]) -> list[str]:
    """The lines of a table, from the cells of its head and of each row."""
    ruler = "|---" * len(head) + "|"
    return [f"| {' | '.join(head)} |", ruler, *(f"| {' | '.join(row)} |" for row in rows)]


def difference_cell(values: Sequence[float]) -> str:
    """The mean, and the ends of its 95% interval."""
    return "{:+.3f} [{:+.3f}, {:+.3f}]".format(*interval(values))


def fill_in(page: str, found: dict[str, list[str]]) -> str:
    """The page with each section's lines between its marks."""
    for name, lines in found.items():
        before, begin, rest = page.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition("<!-- end -->")
        page = before + begin + "\n".join(["", *lines, "", ""]) + end + after
    return page
