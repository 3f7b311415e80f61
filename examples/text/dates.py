"""The grammar of the date task: how people write a date, and the vocabulary of the model that reads it."""

import datetime as dt
import random
from collections.abc import Sequence

import numpy as np

ALPHABET = " abcdefghijklmnopqrstuvwxyz0123456789,.-/'"
PAD = 0  # character c is token ALPHABET.index(c) + 1
LENGTH = 48  # characters that the model reads
ANSWER = "0123456789"  # the model answers eight digits: YYYYMMDD

MONTHS = "january february march april may june july august september october november december".split()
WEEKDAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
ONES = "zero one two three four five six seven eight nine ten eleven twelve".split()
ONES += "thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
TENS = "zero ten twenty thirty forty fifty sixty seventy eighty ninety".split()
ORDINALS = {
    "one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth", "twelve": "twelfth",
}  # fmt: skip


def number(n: int) -> str:
    """0 <= n < 100 in English words."""
    return ONES[n] if n < 20 else TENS[n // 10] + (f"-{ONES[n % 10]}" if n % 10 else "")


def ordinal(n: int) -> str:
    head, _, last = number(n).rpartition("-")
    last = ORDINALS.get(last) or (last[:-1] + "ieth" if last.endswith("y") else last + "th")
    return f"{head}-{last}" if head else last


def suffixed(n: int) -> str:
    return f"{n}" + ("th" if 10 <= n % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th"))


def year_words(year: int, rng: random.Random) -> str:
    century, rest = divmod(year, 100)
    if century == 20 and (rest < 10 or rng.random() < 0.3):
        return "two thousand" + (f" {rng.choice(['and ', ''])}{number(rest)}" if rest else "")
    if not rest:
        return f"{number(century)} hundred"
    return f"{number(century)} {'oh ' if rest < 10 else ''}{number(rest)}"


def write(date: dt.date, rng: random.Random) -> str:
    """One of the ways in which people write `date`, in lower case; numbers alone are day before month unless the year leads."""
    month = MONTHS[date.month - 1]
    month = rng.choice([month, month, month[:3], f"{month[:3]}."])
    number_th = suffixed(date.day)
    day = rng.choice([f"{date.day}", f"{date.day}", f"{date.day:02}", number_th, number_th, ordinal(date.day)])
    year = rng.choice([f"{date.year}", f"{date.year}", year_words(date.year, rng)])
    spoken = ordinal(date.day) if rng.random() < 0.5 else number_th
    forms = [
        f"{day} {month} {year}", f"{month} {day}, {year}", f"{month} {day} {year}", f"the {spoken} of {month} {year}",
        f"the {spoken} of {month}, {year}", f"{spoken} of {month} {year}", f"{year}, {month} {day}",
        f"{day}-{month[:3]}-{date.year}", f"{date.isoformat()}", f"{date.day}.{date.month}.{date.year}",
        f"{date.day:02}/{date.month:02}/{date.year}",
    ]  # fmt: skip
    text = rng.choice(forms)
    weekday = WEEKDAYS[date.weekday()]
    if text[0] not in "0123456789" or " " in text:
        text = rng.choice(["", "", f"{weekday}, ", f"{weekday} ", f"{weekday[:3]} ", "on ", f"on {weekday} "]) + text
    return text if len(text) <= LENGTH else f"{month} {date.day}, {date.year}"


def encode(texts: Sequence[str]) -> np.ndarray:
    """Token ids, int64 [batch, longest]; characters outside the alphabet become spaces."""
    rows = [[max(ALPHABET.find(c), 0) + 1 for c in text.lower().strip()[:LENGTH]] for text in texts]
    ids = np.full((len(rows), max(map(len, rows))), PAD, np.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
    return ids


def decode(scores: np.ndarray) -> list[tuple[str, float]]:
    """Scores float32 [batch, 8, 10] -> ("YYYY-MM-DD", probability of the whole answer) for each."""
    likelihood = np.exp(scores - scores.max(-1, keepdims=True))
    likelihood /= likelihood.sum(-1, keepdims=True)
    answers = []
    for digits, p in zip(scores.argmax(-1), likelihood.max(-1).prod(-1), strict=True):
        text = "".join(ANSWER[d] for d in digits)
        answers.append((f"{text[:4]}-{text[4:6]}-{text[6:]}", float(p)))
    return answers


def random_date(rng: random.Random, held_out: bool) -> dt.date:
    """A date from 1900 to 2099; every tenth day of the calendar is kept out of training."""
    while True:
        date = dt.date(1900, 1, 1) + dt.timedelta(days=rng.randrange(73049))
        if (date.toordinal() * 2654435761 % 2**32 % 10 == 0) == held_out:
            return date
