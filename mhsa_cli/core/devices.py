"""Which device a run uses, and whether attention is right on it."""

from __future__ import annotations

import contextlib
import errno
import platform
from pathlib import Path

import torch

from mhsa_cli.core.model.attention import attention_weights, fused_attention
from mhsa_cli.errors import UsageError

Device = torch.device


def resolve_device(name: str) -> torch.device:
    """Turn auto, cpu, mps, cuda or cuda:N into a device that exists, or say what exists instead."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if count == 0:
            built = "this torch has no CUDA support" if torch.version.cuda is None else "no CUDA device is visible"
            raise UsageError(f"train.device: {name} was asked for, but {built}", "use train.device=cpu or auto")
        if (device.index or 0) >= count:
            raise UsageError(f"train.device: {name} does not exist; there are {count}, from cuda:0", "name another")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise UsageError("train.device: mps was asked for, but this machine has none", "use train.device=cpu or auto")
    return device


def self_check(device: torch.device) -> None:
    """Compare fused with materialised attention on `device`, laid out as in training; refuse the device if they differ.

    Some releases of some backends misread strided views; a run on one of them would be silently wrong.
    Raises: UsageError naming the largest difference.
    """
    generator = torch.Generator().manual_seed(0)
    fused = torch.randn(2, 7, 3 * 3 * 5, generator=generator).to(device)  # B=2 T=7 H=3 d=5
    q, k, v = (t.unflatten(-1, (3, 5)).transpose(1, 2) for t in fused.chunk(3, dim=-1))
    causal = torch.ones(7, 7, dtype=torch.bool, device=device).tril()
    by_hand = attention_weights(q.contiguous(), k.contiguous(), causal) @ v.contiguous()
    worst = float((fused_attention(q, k, v, None, None) - by_hand).abs().max())
    if not worst <= 1e-5:
        raise UsageError(
            f"attention on {device} is wrong with this torch ({torch.__version__}): off by {worst:.2g}",
            "use train.device=cpu, or another version of torch",
        )


def torch_version() -> str:
    """Name the torch that computes, for a run's record."""
    return str(torch.__version__)


def cpu_name() -> str:
    """Name the processor as its maker does, where the system tells."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine() or "unknown"


def cpu_kind() -> str:
    """Name the processor and the vector instructions that torch uses on it: other kinds round in another order."""
    return f"{cpu_name()}, {torch.backends.cpu.get_cpu_capability()}"


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an error says that memory ran out, in whichever words this torch and device say it."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    words = ("not enough memory", "DefaultCPUAllocator", "out of memory")
    return isinstance(error, RuntimeError) and any(word in str(error) for word in words)


def free_cached_memory() -> None:
    """Hand back the device memory that torch keeps for later, so that a smaller attempt finds it."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
