"""Read dates as people write them: python examples/text/run.py "the third of march, nineteen eighty-four" "12 Sept 2031"

Without arguments it reads some examples; with `-` it reads lines that you type.
"""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from dates import decode, encode

import intarsia

EXAMPLES = [
    "3 March 2021", "the twenty-third of June, nineteen ninety-nine", "Dec. 25th, 2030", "on Friday 13th of October 1978",
    "02/11/1955", "2077, July 4", "May the fourth 1977", "1st of january two thousand",
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="Read dates as people write them.")
    parser.add_argument("text", nargs="*", help="dates to read; '-' reads lines from the terminal")
    parser.add_argument("--provider", default="CPUExecutionProvider")
    options = parser.parse_args()
    session = intarsia.InferenceSession(Path(__file__).parent / "dates.onnx", providers=[options.provider])
    batches: Iterable[list[str]] = ([line] for line in sys.stdin) if options.text == ["-"] else [options.text or EXAMPLES]
    for batch in batches:
        texts = [text.strip() for text in batch if text.strip()]
        if not texts:
            continue
        scores = session.run(["digits"], {"characters": encode(texts)})[0]
        for text, (answer, probability) in zip(texts, decode(scores), strict=True):
            print(f"{text:<50} {answer}   ({probability:.0%} sure)")


if __name__ == "__main__":
    main()
