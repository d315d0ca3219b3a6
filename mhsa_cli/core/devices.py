"""The device of a run, its names for the records, and a test of attention on it."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

import numpy as np
import torch

from mhsa_cli.core.model.attention import attention_weights, fused_attention
from mhsa_cli.core.processor import cpu_name
from mhsa_cli.errors import UsageError

Device = torch.device


def resolve_device(name: str) -> torch.device:
    """Return the device auto, cpu, mps, cuda or cuda:N. Raises: UsageError if it does not exist."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if count == 0:
            built = "this torch has no CUDA support" if torch.version.cuda is None else "no CUDA device is visible"
            raise UsageError(f"train.device: {name} is not available: {built}", "use train.device=cpu or auto")
        if (device.index or 0) >= count:
            raise UsageError(f"train.device: {name} does not exist", f"CUDA devices: {count}, from cuda:0")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise UsageError("train.device: mps is not available on this machine", "use train.device=cpu or auto")
    return device


def is_on_cpu(name: str) -> bool:
    """Return whether a device is the CPU, without asking for others: a process that did cannot be forked."""
    return name == "cpu" or (name == "auto" and torch.version.cuda is None and torch.version.hip is None)


def self_check(device: torch.device) -> None:
    """Compare fused with materialised attention on `device`, with the strides of training.

    Some releases of some backends misread strided views. Raises: UsageError with the largest difference.
    """
    generator = torch.Generator().manual_seed(0)
    fused = torch.randn(2, 7, 3 * 3 * 5, generator=generator).to(device)  # B=2 T=7 H=3 d=5
    q, k, v = (t.unflatten(-1, (3, 5)).transpose(1, 2) for t in fused.chunk(3, dim=-1))
    causal = torch.ones(7, 7, dtype=torch.bool, device=device).tril()
    expected = attention_weights(q.contiguous(), k.contiguous(), causal) @ v.contiguous()
    worst = float((fused_attention(q, k, v, None, None) - expected).abs().max())
    if not worst <= 1e-5:
        raise UsageError(
            f"attention on {device} is wrong with torch {torch.__version__}: it differs by {worst:.2g}",
            "use train.device=cpu, or another version of torch",
        )


@contextlib.contextmanager
def same_threads() -> Iterator[None]:
    """Let torch have its number of threads again afterwards."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread: handing out thousands of small operations costs more than it gains."""
    with same_threads():
        torch.set_num_threads(1)
        yield


@contextlib.contextmanager
def same_draws() -> Iterator[None]:
    """Let the random numbers of torch and NumPy go on afterwards as if nothing was drawn."""
    state = np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        yield
    np.random.set_state(state)


def torch_version() -> str:
    """Return the version of torch, for a run's record."""
    return str(torch.__version__)


def cpu_kind() -> str:
    """Return the processor and torch's vector instructions on it, which decide the order of rounding."""
    return f"{cpu_name()}, {torch.backends.cpu.get_cpu_capability()}"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory ran out, by its type or by the message of torch."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    words = ("not enough memory", "DefaultCPUAllocator", "out of memory")
    return isinstance(error, RuntimeError) and any(word in str(error) for word in words)


def free_cached_memory() -> None:
    """Release the device memory that torch caches, for a smaller attempt."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
