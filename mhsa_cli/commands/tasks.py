"""`mhsa tasks`: what a model can be trained on, each drawn as an input row over its target row."""

from __future__ import annotations

from dataclasses import asdict

from mhsa_cli.commands.options import JsonOption


def tasks(as_json: JsonOption = False) -> None:
    """List the tasks; each is drawn as the ids that go in over the answers wanted, with what guessing scores."""
    from mhsa_cli.commands.printing import Paper, print_json
    from mhsa_cli.core.tasks.show import examples
    from mhsa_cli.renderers.table import task_picture

    found = examples()
    if as_json:
        print_json([asdict(info) for info in found])
        return
    paper = Paper()
    for info in found:
        paper.draw(task_picture(info, width=paper.width, surface=paper.surface))
        paper.say()
    paper.say("next: mhsa train task.name=reverse, or mhsa config init my.yaml")
