"""Initial weights from a file: loaded into the model of a new run, kept in its folder, and found again for step 0."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from mhsa_cli.config.custom_attention import is_file
from mhsa_cli.config.init_file import located
from mhsa_cli.config.schema import Config
from mhsa_cli.core.model.custom import CustomAttention
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task
from mhsa_cli.core.training.init_weights import load_initial, read_tensors
from mhsa_cli.core.training.lockstep import build_model
from mhsa_cli.errors import IS, DamageError
from mhsa_cli.jobs.custom_attention import build_custom_model, build_custom_models
from mhsa_cli.jobs.messages import tell
from mhsa_cli.jobs.own_task import make_task
from mhsa_cli.jobs.run_config import planned_file
from mhsa_cli.records.initial import MappedTensor
from mhsa_cli.runs.atomic import write_file_atomic
from mhsa_cli.runs.disk import LIMIT, read_file, storage_errors
from mhsa_cli.runs.listing import INIT, INITIAL
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.text import plural

_LAYER = re.compile(r"(?<=\.)[0-9]+(?=\.)", re.ASCII)


def _read(path: Path) -> bytes:
    with storage_errors("read", path):
        return path.read_bytes()


def first_model(config: Config, task: Task) -> TransformerLM | None:
    """Build the model of a new training that is not drawn from its seed alone; None for one that is.

    With custom attention its file runs; of a file of weights the mapping is told. Raises: UsageError, StorageError.
    """
    model, file = build_custom_model(config, task), config.train.init
    if file is None:
        return model
    model = model or build_model(config, task)
    mapped = load_initial(model, config, read_tensors(_read(Path(located(file))), file), file)
    count = plural(sum(len(one.sources) for one in mapped), "tensor")
    tell("\n  ".join([f"note: initial weights of {file}, {count}:", *mapping_lines(mapped)]))
    return model


def first_models(
    configs: Sequence[Config], task: Task, attention: str | None, file: Path | None
) -> list[TransformerLM] | None:
    """Build the models of trials, with the custom attention `attention` and the weights of `file`; None without both.

    Raises: UsageError, StorageError.
    """
    models = build_custom_models(configs, task, attention)
    if file is None:
        return models
    models = models or [build_model(config, task) for config in configs]
    tensors = read_tensors(_read(file), str(file))
    for model, config in zip(models, configs, strict=True):
        load_initial(model, config, tensors, str(file))
    return models


def planned_init(config: Config, digests: Mapping[str, str], sweep: Path) -> Path | None:
    """Find the file of a trial's initial weights, by its digest in the plan. Raises: RunError if it is not found."""
    given = config.train.init
    return None if given is None else planned_file(given, Path(located(given)), digests[given], sweep, INIT)


def keep_init(config: Config, run: RunDir, file: Path | None = None) -> None:
    """Copy the file of initial weights into the run folder, so that the folder is complete. `file`: where it is now."""
    if config.train.init is not None:
        data = _read(file or Path(located(config.train.init)))
        write_file_atomic(run.path / INIT, data)
        run.update(**{INITIAL: {"file": config.train.init, "sha256": sha256(data).hexdigest()}})


def model_of_step_0(run: RunDir, config: Config, task: Task, custom: CustomAttention | None) -> TransformerLM:
    """Build a run's model as it was before training: drawn from its seed, or from its copy of the file.

    Raises: DamageError if the copy is missing or changed.
    """
    model = build_model(config, task, custom=custom)
    if config.train.init is not None:
        path, wanted = run.path / INIT, (run.read_run_json().get(INITIAL) or {}).get("sha256")
        data = read_file(path, LIMIT)
        if sha256(data).hexdigest() != wanted:
            raise DamageError((path, IS, "not the file whose weights the run began with"), "restore the original")
        load_initial(model, config, read_tensors(data, str(path)), str(path))
    return model.eval()


def init_digests(configs: Sequence[Config]) -> dict[str, str]:
    """Map each file of weights of a new sweep to its sha256; each is tried with every config. Raises: UsageError."""
    found: dict[str, str] = {}
    for config in configs:
        if (file := config.train.init) is None:
            continue
        data = _read(Path(located(file)))
        if file not in found:
            shared = all(other.train.init == file for other in configs)
            which = "every trial" if shared else f"each trial of train.init={file}"
            tell(f"note: {which} begins with the weights of {file}: its seed draws batches and dropout only")
        found[file] = sha256(data).hexdigest()
        if not is_file(config.model.attention):
            load_initial(build_model(config, make_task(config)), config, read_tensors(data, file), file)
    return found


def mapping_lines(mapped: Sequence[MappedTensor]) -> list[str]:
    """Write what became of every tensor, a line each; lines that layers have in common are one, with a *."""
    lines = []
    for one in mapped:
        if one.target:
            shape = f" ({', '.join(map(str, one.shape))})"
            text = f"{' + '.join(one.sources)}{' -> ' * bool(one.sources)}{one.target}{shape}"
        else:
            text = " + ".join(one.sources)
        lines.append(f"{text}: {one.done}" if one.done else text)
    several = {line for line in lines if sum(_LAYER.sub("*", other) == _LAYER.sub("*", line) for other in lines) > 1}
    return list(dict.fromkeys(_LAYER.sub("*", line) if line in several else line for line in lines))
