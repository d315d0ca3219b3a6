from __future__ import annotations

import json
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mhsa_cli.config.dump import dump_yaml, json_schema, template
from mhsa_cli.config.load import parse
from mhsa_cli.config.problems import ConfigError
from mhsa_cli.config.schema import Config, ModelConfig, TrainConfig
from mhsa_cli.config.tasks import TASK_SCHEMAS, PrefixTask

lengths = st.integers(1, 40)
paths = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1).filter(lambda text: "${" not in text)
tasks = st.one_of(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["repeat", "shift"]), "vocab_size": st.integers(2, 999), "seq_len": lengths}
    ),
    st.fixed_dictionaries(
        {
            "name": st.sampled_from([name for name, one in TASK_SCHEMAS.items() if issubclass(one, PrefixTask)]),
            "vocab_size": st.integers(4, 999),
            "seq_len": lengths.map(lambda n: 2 * n),
        }
    ),
    st.fixed_dictionaries(
        {
            "name": st.just("induction"),
            "vocab_size": st.integers(20, 999),
            "seq_len": st.integers(21, 40),
            "min_period": st.none() | st.integers(1, 10),
            "max_period": st.none() | st.integers(10, 20),
            "distinct": st.booleans(),
            "loss_on": st.sampled_from(["answers", "all"]),
        }
    ),
    st.fixed_dictionaries(
        {"name": st.just("text"), "path": paths, "seq_len": lengths, "eval_fraction": st.floats(1e-9, 0.5)}
    ),
)
models = st.fixed_dictionaries(
    {
        "d_model": st.integers(1, 8).map(lambda n: 12 * n),
        "n_heads": st.sampled_from([1, 2, 3, 4, 6, 12]),
        "dropout": st.floats(0, 0.999),
        "norm": st.sampled_from(["none", "layernorm"]),
        "max_seq_len": st.none() | st.integers(80, 99),
        "bias": st.booleans(),
    }
)
trains = st.fixed_dictionaries(
    {
        "lr": st.floats(1e-12, 1e4),
        "seed": st.integers(0, 2**63 - 1),
        "betas": st.tuples(st.floats(0, 0.9999), st.floats(0, 0.9999)),
        "grad_clip": st.none() | st.floats(1e-9, 1e9),
        "device": st.sampled_from(["auto", "cuda:3"]),
    }
)
configs = st.builds(lambda task, model, train: Config.model_validate({"task": task, "model": model, "train": train}),
                    tasks, models, trains)  # fmt: skip


@given(configs)
def test_a_saved_config_loads_back_equal(config: Config) -> None:
    assert parse(dump_yaml(config).encode(), "config.yaml") == config


@given(configs)
def test_a_saved_config_means_the_same_to_a_yaml_1_1_reader(config: Config) -> None:
    assert yaml.safe_load(dump_yaml(config)) == config.to_dict()


def test_odd_bytes_in_a_path_survive_saving() -> None:
    config = Config.model_validate({"task": {"name": "text", "path": "caf\udce9 ü.txt"}})
    assert parse(dump_yaml(config).encode(), "config.yaml") == config


def test_the_template_is_the_default_config_with_a_reason_per_line() -> None:
    text = template()
    assert parse(text.encode(), "t.yaml") == Config()
    assert text.isascii()
    assert max(len(line) for line in text.splitlines()) <= 120
    settings_lines = [line for line in text.splitlines() if line.startswith("  ")]
    assert len(settings_lines) == 3 + len(ModelConfig.model_fields) + len(TrainConfig.model_fields)
    assert all("# " in line for line in settings_lines)


def test_the_json_schema_lists_every_key_and_is_strict() -> None:
    schema = json.loads(json.dumps(json_schema()))
    assert set(schema["properties"]) == {"task", "model", "train", "sweep"}
    assert set(schema["$defs"]["TrainConfig"]["properties"]) == set(TrainConfig.model_fields)
    open_ = {name for name, part in schema["$defs"].items() if part["additionalProperties"] is not False}
    assert open_ == {"OwnTask"}  # whose settings are in its file
    assert [schema["$defs"][title]["required"] for title in ("OwnTask", "Rows")] == [["name"], ["rows"]]


WHOLE = dump_yaml(Config.model_validate({"task": {"name": "copy", "min_length": 3}})).encode()
TOKENS = [
    "&a ",
    "*a",
    "!!int ",
    "\t",
    ": ",
    "- ",
    "[",
    "{",
    ">",
    "? ",
    "---\n",
    "'",
    '"',
    "%",
    "<<: ",
    "999999999999999999999999",
    ".nan",
    "${",
    "\r",
    "\x85",
    "\u2028",
    "\ufeff",
    "#",
    "\\",
    "\x00",
    "null",
    "=",
    "@",
    "`",
    "1e999",
    "\n  ",
    "\n\n",
    "train:",
    "name: ",
    "text",
]
bytes_ = st.binary(max_size=6) | st.sampled_from([token.encode() for token in TOKENS])


@st.composite
def mutants(draw: st.DrawFn) -> bytes:
    data = WHOLE
    for _ in range(draw(st.integers(1, 4))):
        at, length = draw(st.integers(0, len(data))), draw(st.integers(0, 12))
        data = data[:at] + draw(bytes_) + data[at + length :]
    return data


@settings(max_examples=400)
@given(mutants())
def test_a_damaged_file_is_a_config_or_a_config_error(data: bytes) -> None:
    try:
        config: Any = parse(data, "m.yaml")
    except ConfigError as error:
        text = str(error)
        assert text.encode()
        assert "not readable as YAML" not in text or "m.yaml" in text
        for problem in error.problems:
            if problem.line is not None and problem.col is not None:
                assert problem.source_line is not None
                assert 1 <= problem.col <= len(problem.source_line) + 1
    else:
        assert parse(dump_yaml(config).encode(), "again") == config


@settings(max_examples=200)
@given(st.text(max_size=30))
def test_any_override_is_a_config_or_a_config_error(text: str) -> None:
    try:
        parse(b"", "m.yaml", [text, f"task.path={text}", f"lr={text}"])
    except ConfigError as error:
        assert str(error).encode()
