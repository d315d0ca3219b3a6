"""What programs are made of: jobs (terms of the score, and the same in plain Python), copies, answers and rows."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Sequence

from mhsa_cli.records.labels import Role
from tests.core.compiler import LOUD, SCALE, Copy, Head, Job, Row, Table, Term


def back(d: int) -> Job:
    """The token `d` places back; 0: itself."""
    return Job(f"{d} back", [Term("position", "position", lambda q, k: k == q - d)], lambda row, q: [q - d][: q >= d])


def place(p: int) -> Job:
    """A constant place."""
    return Job(f"place {p}", [Term("one", "position", lambda _, k: k == p)], lambda row, q: [p][: q >= p])


def mirror(total: int) -> Job:
    """The place k with k + q = total."""
    terms = [Term("position", "position", lambda q, k: k + q == total)]
    return Job(f"mirror {total}", terms, lambda row, q: [total - q][: 0 <= total - q <= q])


def one_of(*tokens: int) -> Job:
    """All places of some tokens."""
    terms = [Term("one", "token", lambda _, j: j in tokens)]
    return Job(f"tokens {tokens}", terms, lambda row, q: [k for k in range(q + 1) if row[k] in tokens])


def after(token: int) -> Job:
    """The places after a token; a layer below has written the token before each."""
    terms = [Term("one", "before", lambda _, j: j == token)]
    return Job(f"after {token}", terms, lambda row, q: [k for k in range(1, q + 1) if row[k - 1] == token])


def mapped(f: Callable[[int], int], name: str) -> Job:
    """All places of the token f(x_q)."""
    terms = [Term("token", "token", lambda i, j: j == f(i))]
    return Job(name, terms, lambda row, q: [k for k in range(q + 1) if row[k] == f(row[q])])


def modulo(d: int, period: int) -> Job:
    """All places at a distance d, d + period, d + 2 period and so on."""
    terms = [Term("position", "position", lambda q, k: (q - k) % period == d % period)]
    return Job(
        f"{d} modulo {period}", terms, lambda row, q: [k for k in range(q + 1) if (q - k) % period == d % period]
    )


def window(size: int) -> Job:
    """The last places, itself included."""
    terms = [Term("position", "position", lambda q, k: q - size < k <= q)]
    return Job(f"window {size}", terms, lambda row, q: range(max(q - size + 1, 0), q + 1))


def latest(*tokens: int) -> Job:
    """The last place of any of some tokens; without one its own."""
    terms = [Term("one", "token", lambda _, j: 99 * (j in tokens)), Term("one", "position", lambda _, k: k)]
    return Job(f"latest {tokens}", terms, lambda row, q: [max(found(row, q, tokens), default=q)])


def earliest(*tokens: int) -> Job:
    """The first place of any of some tokens; without one the first place of all."""
    terms = [Term("one", "token", lambda _, j: 99 * (j in tokens)), Term("one", "position", lambda _, k: -k)]
    return Job(f"earliest {tokens}", terms, lambda row, q: [min(found(row, q, tokens), default=0)])


def sum_of(query: str, name: str, at: Callable[[Row, int], int], table: Callable[[int], int], sign: int) -> Job:
    """The place nearest to table(number in the block `query`) + sign * q, as the largest of 2 k (a + b) - k * k."""
    terms = [
        Term(query, "position", lambda i, k: 2 * k * table(i)),
        Term("position", "position", lambda q, k: 2 * k * sign * q - k * k),
    ]
    return Job(name, terms, lambda row, q: [at(row, q)][: 0 <= at(row, q) <= q])


def either(first: Job, second: Job, tokens: Collection[int], name: str) -> Job:
    """The first job, or a constant place, which is the second one's, where the query's token is one of some."""
    (term,) = second.terms
    terms = [*first.terms, Term("token", "position", lambda i, k: 2 * (i in tokens) * term.table(0, k))]
    return Job(name, terms, lambda row, q: (second if row[q] in tokens else first).keys(row, q))


def by_place(first: Job, second: Job, name: str) -> Job:
    """The first job at even places, the second at odd ones; both go by position."""
    (one,), (other,) = first.terms, second.terms
    terms = [Term("position", "position", lambda q, k: (other if q % 2 else one).table(q, k))]
    return Job(name, terms, lambda row, q: (second if q % 2 else first).keys(row, q))


def or_first(job: Job) -> Job:
    """A job, and the first token where it finds nothing."""
    terms = [*job.terms, Term("one", "position", lambda _, k: 0.5 * (k == 0))]
    return Job(f"{job.id} or first", terms, lambda row, q: ([0] if 0 in job.keys(row, q) else job.keys(row, q)) or [0])


def and_first(job: Job) -> Job:
    """The keys of a job, of which the first token is none, and the first token."""
    terms = [*job.terms, Term("one", "position", lambda _, k: k == 0)]
    return Job(f"{job.id} and first", terms, lambda row, q: [0, *job.keys(row, q)])


def mixed(share: float) -> Job:
    """The previous token with a share of the weight and the first with the rest."""
    more = math.log(share / (1 - share)) / SCALE
    terms = [
        Term("position", "position", lambda q, k: (1 + more) * (k == q - 1)),
        Term("one", "position", lambda _, k: k == 0),
    ]
    return Job(f"previous {share}", terms, lambda row, q: {q - 1: share, 0: 1 - share} if q > 1 else [0])


def follows(row: Row, q: int) -> list[int]:
    """The places after earlier occurrences of the query's token."""
    return [k for k in range(1, q + 1) if row[k - 1] == row[q]]


def found(row: Row, q: int, tokens: Collection[int]) -> list[int]:
    return [k for k in range(q + 1) if row[k] in tokens]


PREVIOUS, OWN, FIRST = back(1), back(0), place(0)
EVERYWHERE = Job("everywhere", (), lambda row, q: range(q + 1))
SAME = mapped(lambda i: i, "same")
DUPLICATE = Job(
    "duplicate",
    [*SAME.terms, Term("position", "position", lambda q, k: -2 * (q == k))],
    lambda row, q: [k for k in range(q) if row[k] == row[q]] or range(q) or [0],
)
MATCH = Term("token", "before", lambda i, j: i == j)
INDUCTION = Job(  # place 0 has no token before it
    "induction",
    [MATCH, Term("one", "position", lambda _, k: -2 * (k == 0))],
    lambda row, q: follows(row, q) or range(1, q + 1) or [0],
)
FROM_START = or_first(Job("induction", [MATCH], follows))  # where a start token is at place 0
BIGRAMS = Job(
    "induction by two tokens",
    [
        Term("token", "before", lambda i, j: 0.5 * (i == j)),
        Term("before", "second", lambda i, j: 0.5 * (i == j)),
        Term("one", "position", lambda _, k: -2 * (k < 2)),
    ],
    lambda row, q: [k for k in follows(row, q) if k > 1 and row[k - 2] == row[q - 1]],
)
SKIP = Job(
    "two after a match",
    [Term("token", "second", lambda i, j: i == j), Term("one", "position", lambda _, k: -2 * (k < 2))],
    lambda row, q: [k for k in range(2, q + 1) if row[k - 2] == row[q]],
)
LARGEST = Job(
    "largest token", [Term("one", "token", lambda _, j: j)], lambda row, q: found(row, q, [max(row[: q + 1])])
)
POINTER = Job(
    "the place it names", [Term("token", "position", lambda i, k: i == k)], lambda row, q: [row[q]][: row[q] <= q]
)
BY_TOKEN = sum_of("token", "distance by the token", lambda row, q: q - 1 - row[q] // 3, lambda i: -1 - i // 3, 1)
ABOUT = sum_of("middle", "mirror about the separator", lambda row, q: 2 * row.index(9) - q, lambda s: 2 * s, -1)

# What heads copy


def to(target: str, table: Table | None = None, source: str = "token") -> tuple[Copy, ...]:
    return (Copy(source, target, table) if table else Copy(source, target),)


def signed(sign: float) -> tuple[Copy, ...]:
    """The token into the answer, so many times."""
    return to("answer", lambda i, j: sign * (i == j))


def share_of(*tokens: int) -> tuple[Copy, ...]:
    """The share of some tokens among the keys."""
    return to("share", lambda i, _: i in tokens)


PLACE = to("answer", lambda k, j: j == k % 9, "position")  # of the key, modulo the number of answers
MEAN_PLACE = to("share", lambda k, _: k, "position")
HIGH, LOW = to("high", lambda i, j: j == i // 3), to("low", lambda i, j: j == i % 3)
DIGITS = [("high", lambda i, j: LOUD * (i == j // 3)), ("low", lambda i, j: LOUD * (i == j % 3))]

# Answers


def nearest(x: float, *values: float) -> int | None:
    """The number of the nearest level; None where two are nearly as near."""
    near = sorted((abs(x - value), j) for j, value in enumerate(values))
    return near[0][1] if near[1][0] - near[0][0] > 0.1 * (near[0][0] + near[1][0]) else None


def less(limit: int, n: int) -> int | None:
    return n if n < limit else None


def only(keys: Sequence[int]) -> int | None:
    """The one key; None if there are none or several."""
    return keys[0] if len(keys) == 1 else None


def token_at(keys: Callable[[Row, int], Sequence[int]]) -> Callable[[Row, int], int | None]:
    """The answer that is the token at a place, where it is one place."""
    return lambda row, q: None if only(keys(row, q)) is None else row[keys(row, q)[0]]


def part(row: Row, keys: Sequence[int], *tokens: int) -> float:
    """The share of some tokens among keys."""
    return sum(row[k] in tokens for k in keys) / len(keys)


# Rows


def distinct(draw: random.Random, n: int, length: int) -> list[int]:
    return draw.sample(range(n), length)


def started(draw: random.Random, n: int, length: int) -> list[int]:
    """A start token and random symbols."""
    return [n, *draw.choices(range(n), k=length - 1)]


def separated(draw: random.Random, n: int, length: int) -> list[int]:
    """Random symbols with one separator, the first special token, among them."""
    row, at = draw.choices(range(n), k=length), draw.randrange(1, length // 2 + 1)
    return [*row[:at], n, *row[at + 1 :]]


def either_separator(draw: random.Random, n: int, length: int) -> list[int]:
    return [i + draw.randrange(2) if i == n else i for i in separated(draw, n, length)]


def once_zero(draw: random.Random, n: int, length: int) -> list[int]:
    """One token 0 among others."""
    return [0 if i == n else i or draw.randrange(1, n) for i in separated(draw, n, length)]


def said_again(draw: random.Random, n: int, length: int) -> list[int]:
    """A block of six, the separator, the block again."""
    block = draw.choices(range(n), k=6)
    return [*block, n, *block]


def said_backwards(draw: random.Random, n: int, length: int) -> list[int]:
    block = draw.choices(range(n), k=6)
    return [*block, n, *block[::-1]]


# Of several programs

NO: tuple[str, ...] = ()
OUTPUT, NO_EFFECT = (Role.OUTPUT,), (Role.NO_EFFECT,)
BACKUP, CANCELS = (Role.REDUNDANT, Role.SHOWN), (Role.CANCELS,)
SUPPRESSES = (Role.SUPPRESSES, Role.HARMFUL)
BEFORE, SECOND = to("before"), to("second")
MARKED = {"before": 9}
MARK = Head(PREVIOUS, BEFORE, {"previous"})
STARTED = {"rows": started, "specials": 1}
SPLIT = {"rows": separated, "specials": 1, "separator": 9}
COUNT = tuple(1 / (1 + n) for n in range(7))  # of the first token's weight beside n others
