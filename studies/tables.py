"""Tables in Markdown."""


def markdown_table(head: list[str], rows: list[list[str]]) -> list[str]:
    """The lines of a table, from the cells of its head and of each row."""
    ruler = "|---" * len(head) + "|"
    return [f"| {' | '.join(head)} |", ruler, *(f"| {' | '.join(row)} |" for row in rows)]
