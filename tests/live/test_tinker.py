"""The Tinker engine against a server: parity with the engine in process, snapshots, resumption, and a whole run.

    python scripts/skyrl_server.py --install && pip install "auditrl[tinker]"
    python scripts/skyrl_server.py &
    AUDITRL_TINKER_URL=http://127.0.0.1:8765 pytest -n 0 tests/live/test_tinker.py

`AUDITRL_TINKER_CHECKPOINTS` is the server's checkpoint folder (default: the script's). With `AUDITRL_TINKER_RECORD=1` the exchange that
`tests/unit/test_tinker_replay.py` replays is written anew.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tarfile
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "unit"))

from tinker_exchange import Exchange, check, scenario, write  # noqa: E402

from auditrl.errors import ConfigError, ProviderError, RunError  # noqa: E402
from auditrl.policy.engine import AdamConfig, LossConfig, PolicyRef  # noqa: E402
from auditrl.policy.tinker import TinkerEngine  # noqa: E402
from auditrl.policy.tinker_loss import trained_tokens  # noqa: E402
from auditrl.sim.tiny import SHIPPED  # noqa: E402
from auditrl.types import Segment  # noqa: E402

URL = os.environ.get("AUDITRL_TINKER_URL")
CHECKPOINTS = Path(os.environ.get("AUDITRL_TINKER_CHECKPOINTS", ROOT / ".skyrl" / "data" / "checkpoints"))
pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(find_spec("tinker") is None, reason="not installed: tinker (extra tinker)"),
    pytest.mark.skipif(URL is None, reason="no server: start scripts/skyrl_server.py and set AUDITRL_TINKER_URL"),
]
LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def engine_at_server(**changes: Any) -> TinkerEngine:
    return TinkerEngine(str(SHIPPED), server="skyrl-jax", base_url=URL, rank=4, seed=1, context_tokens=512, **changes)


def segments() -> list[Segment]:
    noise = np.random.default_rng(0)
    made: list[Segment] = []
    for length, advantage in ((30, 1.0), (45, -0.7), (25, 0.4), (60, -1.2), (20, 0.3)):
        tokens = [2, *(int(t) for t in noise.integers(6, 235, length))]
        mask = [0] * (length // 3) + [1] * (length + 1 - length // 3)
        made.append(Segment(tokens, mask, [0.0] * len(tokens), advantage=advantage))
    made[3].mask[-5:] = [0] * 5
    return made


def as_peft(archive: Path, folder: Path) -> Path:
    """SkyRL's sampler weights as a PEFT adapter. It does not write which layers it adapts, and PEFT would take two of the seven."""
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"target_modules": LINEAR, "base_model_name_or_path": str(SHIPPED)}))
    return folder


def test_parity_with_the_engine_in_process(tmp_path: Path) -> None:
    """From the same adapter: log-probabilities within 1e-4, and the same tokens moved by the same amounts, under every loss."""
    if not CHECKPOINTS.is_dir():
        pytest.skip(f"{CHECKPOINTS} is not the server's checkpoint folder: set AUDITRL_TINKER_CHECKPOINTS")
    import torch

    from auditrl.policy.local import LocalEngine
    from auditrl.policy.microbatch import micro_batches

    batch, adam = segments(), AdamConfig(lr=2e-4, grad_clip=1e9)

    async def main() -> None:
        remote = engine_at_server()
        await remote.start()
        desk, adapter = remote._training.remote, await remote._adapter()  # pyright: ignore[reportPrivateUsage]
        saved = await desk.wait(adapter.save_weights_for_sampler("parity"), "saving")
        name = f"{adapter.model_id}/sampler_weights/{saved.path.rsplit('/', 1)[1]}.tar.gz"
        local = LocalEngine(as_peft(CHECKPOINTS / name, tmp_path), method="lora", dtype="float32", threads=1)
        await local.start()
        network = local._training.network  # pyright: ignore[reportPrivateUsage]

        async def both() -> tuple[np.ndarray, np.ndarray]:
            there = trained_tokens(batch, await desk.forward(adapter, batch))
            with torch.no_grad():
                parts = [micro_batches([s], 4096, network.device, share_heads=False) for s in batch]
                here = np.concatenate([network.token_logprobs(one, temperature=1.0).numpy() for (one,) in parts])
            return here, there

        start, at_server = await both()
        print(f"log-probabilities of {len(start)} tokens: largest gap {np.abs(start - at_server).max():.1e}")
        assert np.abs(start - at_server).max() < 1e-4
        places = iter(at_server)
        for segment in batch:
            segment.logprobs = [float(next(places)) if m else 0.0 for m in segment.mask]
        for loss in (
            LossConfig(),
            LossConfig(kl_coef=0.1),
            LossConfig(ratio_mask=None),
            LossConfig(kind="importance_sampling", ratio_mask=None),
        ):
            metrics = [(await engine.train_step(batch, loss=loss, adam=adam)).values for engine in (local, remote)]
            same = [{k: v for k, v in values.items() if "second" not in k and "per_s" not in k} for values in metrics]
            assert same[1] == pytest.approx(same[0], rel=1e-3, abs=1e-4)
            here, there = await both()
            moved, gap = np.abs(here - start).max(), np.abs((here - start) - (there - at_server)).max()
            print(f"{loss.kind}, ratio_mask {loss.ratio_mask}, kl_coef {loss.kl_coef}: moved by up to {moved:.3f}, gap {gap:.1e}")
            assert moved > 0.05 and gap < 1e-4
        await remote.close()
        await local.close()

    asyncio.run(main())


def test_snapshots_updates_and_resumption(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    exchange = Exchange(real=import_module("tinker"))
    monkeypatch.setitem(sys.modules, "tinker", exchange.module())
    results = asyncio.run(scenario(engine_at_server, tmp_path))
    check(results, close=1e-4)
    if os.environ.get("AUDITRL_TINKER_RECORD"):
        write(exchange, results, str(SHIPPED))


def test_snapshots_come_and_go_without_filling_the_server() -> None:
    async def main() -> None:
        engine = engine_at_server()
        await engine.start()
        for _ in range(12):
            await engine.publish("reference")
        sampled = await engine.sampler(PolicyRef("reference")).sample([2, 20, 31], max_tokens=4, temperature=1.0, stop=[], seed=1)
        assert len(sampled.tokens) == len(sampled.logprobs) == 4
        await engine.close()

    asyncio.run(main())


def test_why_a_snapshot_is_an_adapter_of_its_own() -> None:
    """SkyRL's own snapshots, by the SDK alone: an earlier one answers with the weights in training, or is loaded over them."""
    tinker: Any = import_module("tinker")
    service = tinker.ServiceClient(base_url=URL, api_key="tml-none")
    adapter = service.create_lora_training_client(str(SHIPPED), rank=4, seed=1)
    (segment,) = segments()[:1]
    prompt, width = tinker.types.ModelInput.from_ints(segment.tokens), len(segment.tokens) - 1

    def datum(logprobs: list[float]) -> Any:
        inputs = {"target_tokens": segment.tokens[1:], "logprobs": logprobs, "advantages": [1.0] * width, "weights": [1.0] * width}
        return tinker.types.Datum(model_input=tinker.types.ModelInput.from_ints(segment.tokens[:-1]), loss_fn_inputs=inputs)

    def in_training() -> float:
        return float(np.mean(adapter.forward([datum([0.0] * width)], "importance_sampling").result().loss_fn_outputs[0]["logprobs"].data))

    def by_sampler(sampler: Any) -> float:
        return float(np.mean(sampler.compute_logprobs(prompt).result()[-width:]))

    old = service.create_sampling_client(model_path=adapter.save_weights_for_sampler("old").result().path)
    start = by_sampler(old)
    adapter.forward_backward([datum([start] * width)], "importance_sampling").result()
    adapter.optim_step(tinker.types.AdamParams(learning_rate=1e-2)).result()
    moved, old_after = in_training(), by_sampler(old)
    by_sampler(adapter.save_weights_and_get_sampling_client())
    old_again, trained_after = by_sampler(old), in_training()
    print(f"mean log-probability: start {start:.2f}, after an update {moved:.2f}; the old snapshot then {old_after:.2f}")
    print(f"after the current sampler: the old snapshot {old_again:.2f}, and the weights in training {trained_after:.2f}")
    reason = "SkyRL keeps snapshots apart now: `twins` can go from tinker_server.TRAITS"
    assert old_after == pytest.approx(moved, abs=1e-3) and trained_after == pytest.approx(start, abs=1e-3), reason


def test_what_the_server_refuses(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(ConfigError, match=f"has no model 'other/model'. It has: {SHIPPED}"):
            await TinkerEngine("other/model", server="skyrl-jax", base_url=URL).start()
        with pytest.raises(ConfigError, match="no Tinker server"):
            await TinkerEngine(str(SHIPPED), server="skyrl-jax", base_url=f"{URL}/elsewhere").start()
        with pytest.raises(ProviderError, match="nothing answers"):
            await TinkerEngine(str(SHIPPED), server="skyrl-jax", base_url="http://127.0.0.1:9").start()
        engine = engine_at_server()
        await engine.start()
        folder = Path(await engine.save(str(tmp_path / "step-0000")))
        manifest = json.loads((folder / "engine.json").read_text())
        (folder / "engine.json").write_text(json.dumps(manifest | {"uri": manifest["uri"] + "-gone"}))
        with pytest.raises(RunError, match="no longer has tinker://.*-gone"):
            await engine.load(str(folder))
        await engine.close()

    asyncio.run(main())


RUN = """
extends = "{quickstart}"
name = "at-server"

[policy]
engine = "tinker"
method = "lora"

[policy.lora]
rank = 4

[policy.tinker]
server = "skyrl-jax"
base_url = "{url}"

[train]
steps = 2
groups = 2
group_size = 2
checkpoint_every = 1

[reward]
calibration_eighths = 0

[probe]
every = 0

[alarms]
every = 0

[evaluation]
profile = "off"

[audit]
max_turns = 4
"""


def test_a_whole_run_and_its_resumption(tmp_path: Path) -> None:
    from auditrl.config import load_config, packaged_config
    from auditrl.display import make_display
    from auditrl.runs import create_run, open_run, owned
    from auditrl.train.session import whole_run

    path = tmp_path / "run.toml"
    path.write_text(RUN.format(quickstart=packaged_config("quickstart"), url=URL))
    run = create_run(tmp_path / "runs", load_config(path))
    with owned(run):
        asyncio.run(whole_run(run, make_display("none")))
    rows = run.metrics()
    assert len(rows) == 2 and run.checkpoints()[-1] == 2
    print(
        [{key: rows[i]["update"].get(key) for key in ("loss", "ratio_mean", "ratio_max", "trained_tokens", "grad_norm")} for i in range(2)]
    )
    run.metrics_file.write_text("".join(line + "\n" for line in run.metrics_file.read_text().splitlines()[:1]))
    again = open_run(run.path)
    with owned(again):
        asyncio.run(whole_run(again, make_display("none")))
    assert len(again.metrics()) == 2
