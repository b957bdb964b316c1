"""Which device a run takes, and in which precision: asked of the hardware, never assumed."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import torch


def pick_device(name: str | None) -> torch.device:
    """`name`, or a GPU where there is one."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"--device {name}: expected cpu, cuda or cuda:0, cuda:1, ...") from None
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"--device {name}: expected cpu or cuda")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"--device {name}: this machine has {torch.cuda.device_count()} CUDA devices; give --device cpu"
        )
    return device


def multiplies_bf16(device: torch.device) -> bool:
    """Whether bf16 products are faster than fp32's, not merely possible."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    if sys.platform != "linux":
        return False
    try:
        flags = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")), "")
    except OSError:
        return False
    return bool({"avx512_bf16", "amx_bf16"} & set(flags.split()))


def pick_precision(asked: str, device: torch.device) -> str:
    """`auto` as a word; anything else as it is, refused where the device has no such thing."""
    if asked == "fp16" and device.type == "cpu":
        raise ValueError("train.precision=fp16 needs a GPU: give bf16, fp32 or auto on a CPU")
    if asked != "auto":
        return asked
    if multiplies_bf16(device):
        return "bf16"
    return "fp16" if device.type == "cuda" else "fp32"


def autocast(device: torch.device, precision: str) -> AbstractContextManager[None]:
    kinds = {"bf16": torch.bfloat16, "fp16": torch.float16}
    return torch.autocast(device.type, dtype=kinds[precision]) if precision in kinds else nullcontext()


@contextmanager
def reduced_products(device: torch.device, precision: str) -> Iterator[None]:
    """fp32 matrix products by a CPU's bf16 units, where precision is reduced anyway (error 1e-4 on logits)."""
    before = torch.get_float32_matmul_precision()
    if precision == "bf16" and device.type == "cpu":
        torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def peak_memory(device: torch.device) -> int:
    """Bytes, the most so far: of the GPU's allocator, or of the process."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
