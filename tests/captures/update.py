"""Writes the goldens anew: `python -m tests.captures.update`.

A capture whose outcome is not the expected one gets no golden: nothing wrong is made a promise.
"""

import sys

from tests.captures import CHAT, GUARD, STAGED, lines, outcome


def main() -> int:
    wrong: list[str] = []
    for capture in CHAT:
        decoded, expected = capture.decode_all(), capture.expected
        told = [outcome(one.response, want) for one, want in zip(decoded, expected, strict=False)]
        if told != expected or len(decoded) != len(expected):
            wrong.append(str(capture))
            capture.golden.unlink(missing_ok=True)
        else:
            printed = b"".join(lines(one.parts) for one in decoded)
            capture.golden.write_text(printed.decode())
    for soup in [*GUARD, *STAGED]:
        soup.golden.write_bytes(lines(soup.guarded()[0]))
    for name in wrong:
        print(f"{name}: not what was expected", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
