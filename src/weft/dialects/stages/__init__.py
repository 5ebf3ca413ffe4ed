"""Stages: parts in, parts out, between a decoder and the guard."""


def partial_match(text: str, mark: str) -> int:
    """Returns how many characters at the end of a text could be the beginning of a mark."""
    for length in range(min(len(mark) - 1, len(text)), 0, -1):
        if text.endswith(mark[:length]):
            return length
    return 0
