"""Grade an object of this process, as a copy: without limits, and confirmed by no other process."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Any

from mhsa_cli.check.call.instance import same_globals
from mhsa_cli.check.confirm import answer, claim, grade, refusal
from mhsa_cli.check.match.context import Context
from mhsa_cli.check.source.objects import source_of
from mhsa_cli.core.devices import one_thread, same_draws
from mhsa_cli.jobs.grade.judge import unconfirmed
from mhsa_cli.records.check import Grade, GradeOptions


def grade_here(block: Any, options: GradeOptions) -> Grade:
    """Grade a module, class, function or other object; a right one is tried again with fresh weights and input."""
    source, contexts = source_of(block), list[Context]()
    with one_thread(), same_draws(), same_globals(source.namespace):
        found = grade(source, options, on_context=contexts.append)
        if found.passed:
            claimed, seed = claim(contexts[0]), secrets.randbits(48)
            laws = [(law.id, law.passed) for law in found.laws]
            if refused := refusal(laws, claimed, seed, answer(contexts[0], claimed, seed), options.causal):
                why = (unconfirmed(*refused),)
                found = Grade(source.name, "uncallable", {}, (), (), found.notes, why, found.seconds)
    return replace(found, block=source.name)
