"""Small programs whose heads have known jobs, as a table: what may be said of each head stands beside it.

A head's labels are right where an ideal head of the label would give at least four answers in five; none of them is
right where the set is empty.
"""

from __future__ import annotations

from tests.core.compiler import Head, Program
from tests.core.program_parts import (
    ABOUT,
    BACKUP,
    BEFORE,
    BIGRAMS,
    BY_TOKEN,
    CANCELS,
    COUNT,
    DIGITS,
    DUPLICATE,
    EVERYWHERE,
    FIRST,
    FROM_START,
    HIGH,
    INDUCTION,
    LARGEST,
    LOW,
    MARK,
    MARKED,
    MEAN_PLACE,
    NO,
    NO_EFFECT,
    OUTPUT,
    OWN,
    PLACE,
    POINTER,
    PREVIOUS,
    SAME,
    SECOND,
    SKIP,
    SPLIT,
    STARTED,
    SUPPRESSES,
    after,
    and_first,
    back,
    by_place,
    distinct,
    earliest,
    either,
    either_separator,
    follows,
    found,
    latest,
    less,
    mapped,
    mirror,
    mixed,
    modulo,
    nearest,
    once_zero,
    one_of,
    or_first,
    part,
    place,
    said_again,
    said_backwards,
    share_of,
    signed,
    to,
    token_at,
    window,
)

PROGRAMS = [
    # By position
    Program("previous", [[Head(PREVIOUS, labels={"previous"})]], token_at(PREVIOUS.keys)),
    Program(
        "itself", [[Head(OWN, to("answer", lambda i, j: j == (i + 1) % 9), {"self"})]], lambda row, q: (row[q] + 1) % 9
    ),
    Program("first", [[Head(FIRST, labels={"first"})]], lambda row, q: row[0] if q else None),
    Program("2 back", [[Head(back(2), labels={"offset:2"})]], token_at(back(2).keys)),
    Program("5 back", [[Head(back(5), labels={"offset:5"})]], token_at(back(5).keys)),
    Program("10 back", [[Head(back(10), labels={"offset:10"})]], token_at(back(10).keys)),
    Program("all the way back", [[Head(back(13), labels={"offset:13"})]], token_at(back(13).keys)),
    Program(
        "2 back or first",
        [[Head(or_first(back(2)), labels={"offset:2"})]],
        lambda row, q: row[max(q - 2, 0)] if q else None,
    ),
    Program(
        "7 back or first", [[Head(or_first(back(7)), labels=NO)]], lambda row, q: row[max(q - 7, 0)] if q else None
    ),
    Program("place 4", [[Head(place(4), labels=NO)]], lambda row, q: row[4] if q > 4 else None),
    Program(
        "place 4, named",
        [[Head(place(4), labels={"answer"})]],
        lambda row, q: row[4] if q > 4 else None,
        source=lambda row, q: 4 if q > 4 else None,
    ),
    Program("mirror", [[Head(mirror(13), labels=NO)]], lambda row, q: row[13 - q] if q > 6 else None),
    Program(
        "reverse",
        [[Head(mirror(11), labels={"answer"})]],
        lambda row, q: row[11 - q] if 6 <= q < 12 else None,
        rows=said_backwards,
        specials=1,
        separator=9,
        length=13,
        source=lambda row, q: 11 - q if 6 <= q < 12 else None,
    ),
    Program(
        "copy",
        [[Head(back(6), labels={"offset:6", "answer"})]],
        lambda row, q: row[q - 6] if 6 <= q < 12 else None,
        rows=said_again,
        specials=1,
        separator=9,
        length=13,
        source=lambda row, q: q - 6 if 6 <= q < 12 else None,
    ),
    Program(
        "itself or previous, by place",
        [[Head(by_place(OWN, PREVIOUS, "itself or previous"), labels=NO)]],
        lambda row, q: row[q - q % 2],
    ),
    Program(
        "1, 4, 7 back",
        [[Head(modulo(1, 3), share_of(0, 1, 2, 3), {"modulo:1:3"})]],
        lambda row, q: nearest(part(row, range(q - 1, -1, -3), 0, 1, 2, 3), 0, 1) if q else None,
        levels=(0, 1),
    ),
    Program(
        "0, 4, 8 back",
        [[Head(modulo(0, 4), share_of(0, 1, 2, 3), {"modulo:0:4"})]],
        lambda row, q: nearest(part(row, range(q, -1, -4), 0, 1, 2, 3), 0, 1),
        levels=(0, 1),
    ),
    Program(
        "window",
        [[Head(window(4), share_of(0, 2, 4, 6), NO)]],
        lambda row, q: nearest(part(row, range(q - 3, q + 1), 0, 2, 4, 6), 0, 0.25, 0.5, 0.75, 1) if q > 2 else None,
        levels=(0, 0.25, 0.5, 0.75, 1),
    ),
    # By content
    Program(
        "same token",
        [[Head(SAME, MEAN_PLACE, {"same"})]],
        lambda row, q: nearest(sum(SAME.keys(row, q)) / len(SAME.keys(row, q)), 1, 6, 11),
        n_symbols=5,
        levels=(1, 6, 11),
    ),
    Program(
        "duplicate",
        [[MARK], [Head(DUPLICATE, to("answer", source="before"), {"duplicate"})]],
        token_at(lambda row, q: [k - 1 for k in range(q) if row[k] == row[q] and 0 not in found(row, q, [row[q]])]),
        blocks=MARKED,
    ),
    Program("induction", [[MARK], [Head(INDUCTION, labels={"induction"})]], token_at(follows), blocks=MARKED),
    Program(
        "induction by two tokens",
        [[MARK, Head(back(2), SECOND, {"offset:2"})], [Head(BIGRAMS, labels=NO)]],
        token_at(BIGRAMS.keys),
        n_symbols=3,
        length=17,
        blocks={"before": 3, "second": 3},
    ),
    Program(
        "two after a match",
        [[Head(back(2), SECOND, {"offset:2"})], [Head(SKIP, labels=NO)]],
        token_at(SKIP.keys),
        blocks={"second": 9},
    ),
    Program(
        "next letter",
        [[Head(mapped(lambda i: (i + 1) % 13, "next letter"), to("answer", source="position"), NO)]],
        lambda row, q: row.index((row[q] + 1) % 13) if (row[q] + 1) % 13 in row[: q + 1] else None,
        rows=distinct,
        n_symbols=13,
        length=13,
    ),
    Program(
        "before the partner",
        [[MARK], [Head(mapped(lambda i: i ^ 1, "partner"), to("answer", source="before"), NO)]],
        token_at(lambda row, q: [k - 1 for k in found(row, q, [row[q] ^ 1])] if row[0] != row[q] ^ 1 else []),
        n_symbols=10,
        blocks={"before": 10},
    ),
    Program(
        "latest of three",
        [[Head(latest(0, 1, 2), labels=NO)]],
        lambda row, q: next((i for i in row[q::-1] if i < 3), None),
    ),
    Program(
        "hold",
        [[Head(latest(1, 2, 3, 4), labels=NO)]],
        lambda row, q: next((i for i in row[q::-1] if i), None),
        rows=lambda draw, n, length: [draw.randrange(1, n) if draw.random() < 0.3 else 0 for _ in range(length)],
        n_symbols=5,
    ),
    Program("largest so far", [[Head(LARGEST, labels=NO)]], lambda row, q: max(row[: q + 1])),
    Program(
        "first place of 0",
        [[Head(earliest(0), PLACE, NO)]],
        lambda row, q: row.index(0) % 9 if 0 in row[: q + 1] else None,
        rows=lambda draw, n, length: [draw.randrange(1, 9) if draw.random() < 0.8 else 0 for _ in range(length)],
    ),
    Program("the place it names", [[Head(POINTER, labels=NO)]], token_at(POINTER.keys)),
    Program("distance by the token", [[Head(BY_TOKEN, labels=NO)]], token_at(BY_TOKEN.keys)),
    Program(
        "previous or first, by the token",
        [[Head(either(PREVIOUS, FIRST, {1, 3, 5, 7}, "previous or first"), labels=NO)]],
        lambda row, q: (row[0] if row[q] % 2 else row[q - 1]) if q else None,
    ),
    # Tokens with a part to play
    Program(
        "separator",
        [[Head(one_of(9), PLACE, {"separator", "token:9"})]],
        lambda row, q: row.index(9) % 9 if 9 in row[: q + 1] else None,
        **SPLIT,
    ),
    Program(
        "one of two separators",
        [[Head(one_of(9, 10), labels=NO)]],
        token_at(one_of(9, 10).keys),
        rows=either_separator,
        specials=2,
    ),
    Program(
        "token 0",
        [[Head(one_of(0), PLACE, {"token:0"})]],
        lambda row, q: row.index(0) % 9 if 0 in row[: q + 1] else None,
        rows=once_zero,
    ),
    Program(
        "after the separator",
        [[Head(PREVIOUS, BEFORE, {"previous"})], [Head(after(9), labels=NO)]],
        token_at(after(9).keys),
        **SPLIT,
        blocks={"before": 10},
    ),
    Program(
        "mirror about the separator",
        [
            [Head(one_of(9), to("middle", source="position"), {"separator", "token:9"})],
            [Head(ABOUT, labels={"answer"})],
        ],
        lambda row, q: row[2 * row.index(9) - q] if row.index(9) < q <= 2 * row.index(9) else None,
        **SPLIT,
        blocks={"middle": 14},
        source=lambda row, q: 2 * row.index(9) - q if 9 in row and row.index(9) < q <= 2 * row.index(9) else None,
    ),
    Program(
        "induction or nothing",
        [[Head(PREVIOUS, BEFORE, {"previous"})], [Head(FROM_START, labels=NO)]],
        lambda row, q: (token_at(follows)(row, q) if follows(row, q) else 9) if q else None,
        **STARTED,
        blocks={"before": 10},
    ),
    Program(
        "induction that parks",
        [[Head(PREVIOUS, BEFORE, {"previous"})], [Head(FROM_START, labels={"induction"})]],
        token_at(follows),
        **STARTED,
        blocks={"before": 10},
    ),
    Program(
        "sink",
        [
            [
                Head(PREVIOUS, labels={"previous"}),
                Head(FIRST, to("answer", lambda i, j: -2 * (i == j < 9)), {"first"}, parks=True),
            ]
        ],
        lambda row, q: row[q - 1] if q > 1 else None,
        **STARTED,
    ),
    # Counters
    Program(
        "majority",
        [[Head(EVERYWHERE, share_of(0, 1, 2, 3), NO, OUTPUT)]],
        lambda row, q: nearest(part(row, range(q + 1), 0, 1, 2, 3), 0, 1),
        levels=(0, 1),
    ),
    Program(
        "more opened than closed",
        [
            [
                Head(EVERYWHERE, share_of(0, 1), NO, OUTPUT),
                Head(EVERYWHERE, to("share", lambda i, _: -(i in (2, 3, 4))), NO, OUTPUT),
            ]
        ],
        lambda row, q: nearest(part(row, range(q + 1), 0, 1) - part(row, range(q + 1), 2, 3, 4), -1, 1),
        n_symbols=6,
        levels=(-1, 1),
    ),
    Program(
        "how many zeros",
        [[Head(and_first(one_of(0)), share_of(9), NO)]],
        lambda row, q: less(7, row[: q + 1].count(0)),
        levels=COUNT,
        **STARTED,
    ),
    Program(
        "how often so far",
        [[Head(and_first(SAME), share_of(9), NO)]],
        lambda row, q: less(7, row[: q + 1].count(row[q])) if q else None,
        rows=lambda draw, n, length: [9, *draw.choices(range(4), k=length - 1)],
        specials=1,
        levels=COUNT,
    ),
    # Several heads
    Program(
        "two parts",
        [[Head(mixed(0.6), share_of(0, 2, 4, 6), NO)]],
        lambda row, q: (row[q - 1] in (0, 2, 4, 6)) + 2 * (row[0] in (0, 2, 4, 6)) if q > 1 else None,
        levels=(0, 0.6, 0.4, 1),
    ),
    Program(
        "mostly previous", [[Head(mixed(0.75), signed(2), {"previous"})]], lambda row, q: row[q - 1] if q > 1 else None
    ),
    Program(
        "two digits",
        [[Head(PREVIOUS, HIGH, {"previous"}), Head(back(3), LOW, {"offset:3"})]],
        lambda row, q: 3 * (row[q - 1] // 3) + row[q - 3] % 3 if q > 2 else None,
        blocks={"high": 3, "low": 3},
        output=DIGITS,
    ),
    Program(
        "two more digits",
        [[Head(FIRST, HIGH, {"first"}), Head(OWN, LOW, {"self"})]],
        lambda row, q: 3 * (row[0] // 3) + row[q] % 3 if q else None,
        blocks={"high": 3, "low": 3},
        output=DIGITS,
    ),
    Program(
        "previous of the previous",
        [[MARK], [Head(PREVIOUS, to("answer", source="before"), {"previous"})]],
        token_at(back(2).keys),
        blocks=MARKED,
    ),
    Program(
        "first, everywhere",
        [[Head(FIRST, BEFORE, {"first"})], [Head(OWN, to("answer", source="before"), NO, OUTPUT)]],
        lambda row, q: row[0] if q else None,
        blocks=MARKED,
    ),
    Program("two copies", [[Head(PREVIOUS, labels={"previous"}, causes=BACKUP)] * 2], token_at(PREVIOUS.keys)),
    Program("three copies", [[Head(back(2), labels={"offset:2"}, causes=BACKUP)] * 3], token_at(back(2).keys)),
    Program(
        "induction, two copies",
        [[MARK], [Head(INDUCTION, labels={"induction"}, causes=BACKUP)] * 2],
        token_at(follows),
        blocks=MARKED,
    ),
    Program(
        "with idle heads",
        [
            [
                Head(PREVIOUS, labels={"previous"}),
                Head(FIRST, (), NO, NO_EFFECT),
                Head(SAME, (), NO, NO_EFFECT),
                Head(None, (), NO, NO_EFFECT),
            ]
        ],
        token_at(PREVIOUS.keys),
    ),
    Program(
        "suppressed",
        [[Head(PREVIOUS, signed(0.3), {"previous"}), Head(PREVIOUS, signed(-0.2), NO, SUPPRESSES)]],
        token_at(PREVIOUS.keys),
        sure=False,
    ),
    Program(
        "the other of two",
        [[Head(window(2), signed(2), NO), Head(OWN, signed(-1), {"self"})]],
        lambda row, q: row[q - 1] if q and row[q - 1] != row[q] else None,
    ),
    Program(
        "a cancelling pair",
        [
            [
                Head(FIRST, labels={"first"}),
                Head(PREVIOUS, signed(3), {"previous"}, CANCELS),
                Head(PREVIOUS, signed(-3), {"previous"}, CANCELS),
            ]
        ],
        lambda row, q: row[0] if q else None,
    ),
    Program(
        "with a constant",
        [
            [
                Head(PREVIOUS, to("answer", lambda i, j: 2 * (i == j < 5)), {"previous"}),
                Head(FIRST, to("answer", lambda _, j: j == 8, "one"), NO, OUTPUT),
            ]
        ],
        lambda row, q: (row[q - 1] if row[q - 1] < 5 else 8) if q else None,
    ),
]
