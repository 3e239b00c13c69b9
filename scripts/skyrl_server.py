"""Start SkyRL's Tinker server on the CPU, in an environment of its own: a server to try `policy.engine = "tinker"` with.

    python scripts/skyrl_server.py --install          # once: makes .skyrl/env (6.7 GB: SkyRL brings torch)
    python scripts/skyrl_server.py                    # serves the tiny policy at http://127.0.0.1:8765 until Ctrl-C

The model is a Hugging Face folder of an architecture that SkyRL's JAX backend knows (Llama 3, Qwen 3, DeepSeek V3). Database and
checkpoints stay in `--data`: started again with the same folder, the server still has the states of earlier runs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("skyrl[tinker,jax]==0.4.0", "aiohttp", "uv")
"""SkyRL 0.4.0 imports aiohttp without asking for it, and starts its engine with `uv run`."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--install", action="store_true", help="make the environment and stop")
    parser.add_argument("--env", type=Path, default=ROOT / ".skyrl" / "env", help="virtual environment of the server")
    parser.add_argument("--data", type=Path, default=ROOT / ".skyrl" / "data", help="its database and checkpoints")
    parser.add_argument("--model", type=Path, default=ROOT / "src" / "auditrl" / "sim" / "tiny", help="Hugging Face folder")
    parser.add_argument("--port", type=int, default=8765)
    parser.add_argument("--rank", type=int, default=32, help="highest LoRA rank")
    parser.add_argument("--adapters", type=int, default=8, help="room for adapters: the policy, its snapshots, and one for the base model")
    parser.add_argument(
        "--batch", type=int, default=16, help="sequences of a sampling batch; smaller ones are padded, so that shapes repeat"
    )
    parser.add_argument("--micro-batch", type=int, default=8, help="sequences of a training pass")
    options = parser.parse_args()
    if options.install:
        return install(options.env)
    uv = options.env / "bin" / "uv"
    if not uv.is_file():
        print(f"{options.env}: no SkyRL there. Make it: python {Path(__file__).name} --install", file=sys.stderr)
        return 2
    options.data.mkdir(parents=True, exist_ok=True)
    return os.execve(uv, command(options), environment(options.env))


def install(env: Path) -> int:
    venv.create(env, with_pip=True)
    return subprocess.run([env / "bin" / "python", "-m", "pip", "install", "-q", *PACKAGES], check=False).returncode


def command(options: argparse.Namespace) -> list[str]:
    """SkyRL's server starts its engine with the `uv run` flags of its own parent, so `uv run` must be that parent."""
    backend = {
        "max_lora_adapters": options.adapters,
        "max_lora_rank": options.rank,
        "sample_max_num_sequences": options.batch,
        "train_micro_batch_size": options.micro_batch,
    }
    data = options.data.resolve()
    return [
        *("uv", "run", "--no-project", "--active", "-m", "skyrl.tinker.api"),
        *("--base-model", str(options.model.resolve())),
        *("--backend", "jax", "--backend-config", json.dumps(backend)),
        *("--host", "127.0.0.1", "--port", str(options.port)),
        *("--database-url", f"sqlite:///{data / 'tinker.db'}", "--checkpoints-base", str(data / "checkpoints")),
    ]


def environment(env: Path) -> dict[str, str]:
    path = os.pathsep.join([str(env.resolve() / "bin"), os.environ.get("PATH", "")])
    return {**os.environ, "VIRTUAL_ENV": str(env.resolve()), "PATH": path, "JAX_PLATFORMS": "cpu", "HF_HUB_OFFLINE": "1"}


if __name__ == "__main__":
    sys.exit(main())
