"""The processor of this machine: its name, and whether it computes in bfloat16."""

from __future__ import annotations

import contextlib
import functools
import platform
import subprocess
from pathlib import Path

INSTRUCTION_SETS = {
    "avx2": "AVX2",
    "avx512f": "AVX-512",
    "avx512_bf16": "AVX-512 BF16",
    "amx_bf16": "AMX BF16",
    "asimd": "NEON",
    "sve": "SVE",
    "bf16": "BF16",
}
"""Those that matter for training, by the names that Linux gives them."""
BFLOAT16 = ("AVX-512 BF16", "AMX BF16", "BF16")
MAC_FEATURES = {"hw.optional.neon": "NEON", "hw.optional.arm.FEAT_BF16": "BF16"}


def processor_name() -> str:
    """Return the name of this machine's processor."""
    described = _described()
    return described.get("model name") or _sysctl("machdep.cpu.brand_string") or platform.processor()


@functools.cache
def instruction_sets() -> tuple[str, ...]:
    """Return the instruction sets of this machine that matter for training.

    >>> set(instruction_sets()) <= {*INSTRUCTION_SETS.values()}
    True
    """
    described = _described()
    known = set((described.get("flags") or described.get("Features") or "").split())
    found = [name for flag, name in INSTRUCTION_SETS.items() if flag in known]
    found += [name for key, name in MAC_FEATURES.items() if _sysctl(key) == "1"]
    return tuple(found)


def has_bfloat16() -> bool:
    """Return whether the processor multiplies numbers in bfloat16; others emulate it slowly."""
    return not {*BFLOAT16}.isdisjoint(instruction_sets())


def _described() -> dict[str, str]:
    """Return what Linux tells of the first core."""
    with contextlib.suppress(OSError):
        core = Path("/proc/cpuinfo").read_text("utf-8").split("\n\n")[0]
        pairs = (line.partition(":") for line in core.splitlines())
        return {key.strip(): value.strip() for key, _, value in pairs}
    return {}


def _sysctl(key: str) -> str:
    """Return what macOS tells."""
    if platform.system() != "Darwin":
        return ""
    reply = subprocess.run(["sysctl", "-n", key], capture_output=True, text=True, check=False)
    return reply.stdout.strip()
