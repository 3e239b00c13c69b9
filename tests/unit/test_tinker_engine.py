"""The Tinker engine against a stand-in server (`tinker_stand_in`): losses, snapshots, checkpoints, and what can go wrong."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tinker_stand_in import MODEL, VOCABULARY, FakeServer, StatusError

from auditrl.config import PolicyConfig, describe_validation
from auditrl.errors import AuditrlError, ConfigError, ProviderError, RewardError, RunError
from auditrl.policy import tinker_remote, tinker_server
from auditrl.policy.engine import AdamConfig, LossConfig, PolicyRef
from auditrl.policy.tinker import TinkerEngine, context_of
from auditrl.policy.tinker_loss import token_loss, trained_only, weights_for
from auditrl.policy.tinker_server import Pulse, api_key, check_answers, probe, sdk
from auditrl.types import Segment

Kind = Literal["tinker", "skyrl", "skyrl-jax"]
KINDS: tuple[Kind, ...] = ("tinker", "skyrl", "skyrl-jax")
CURRENT = PolicyRef("current")
ADAM = AdamConfig(lr=0.05)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    """A stand-in server behind `import tinker`, its health page and the page that frees adapters."""
    fake = FakeServer()
    monkeypatch.setitem(sys.modules, "tinker", fake.module())
    monkeypatch.setenv("TINKER_API_KEY", "tml-test")
    monkeypatch.delenv("TINKER_BASE_URL", raising=False)
    monkeypatch.setattr(tinker_server, "check_answers", lambda *_: None)
    monkeypatch.setattr(tinker_remote, "post", lambda _address, _page, body: fake.unload(body["model_id"]))
    return fake


def engine_for(server: FakeServer, kind: Kind = "skyrl-jax", **changes: Any) -> TinkerEngine:
    server.kind = kind
    return TinkerEngine(MODEL, server=kind, base_url="http://server", rank=4, **changes)


def run(work: Callable[[], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        return await work()

    return asyncio.run(main())


def batch() -> list[Segment]:
    """Three segments of different length, one of them without a trained token, one with something behind the last one."""
    noise = np.random.default_rng(5)
    made: list[Segment] = []
    for length, advantage in ((9, 1.0), (5, 0.4), (14, -0.8), (6, 0.7)):
        mask = [0, 0] + [int(v) for v in noise.integers(0, 2, length - 2)]
        made.append(
            Segment([int(v) for v in noise.integers(0, VOCABULARY, length)], mask, [0.0] * length, advantage=advantage, audit_id="a")
        )
    made[1].mask = [0] * 5
    made[2].mask[-3:] = [1, 0, 0]
    for segment in made:
        segment.logprobs = [
            float(v) if m else 0.0 for v, m in zip(-2.4 + noise.normal(scale=0.6, size=len(segment.mask)), segment.mask, strict=True)
        ]
    return made


# ---------------------------------------------------------------- losses

TOKENS = st.lists(st.tuples(*[st.floats(-6, 0)] * 3, st.floats(-2, 2)), min_size=1, max_size=12)
LOSSES = st.builds(
    LossConfig,
    kind=st.sampled_from(["ppo", "importance_sampling"]),
    ratio_mask=st.sampled_from([None, (0.2, 5.0)]),
    kl_coef=st.sampled_from([0.0, 0.3]),
)


@settings(max_examples=60, deadline=None)
@given(tokens=TOKENS, config=LOSSES)
def test_loss_and_gradient_are_those_of_the_local_engine(tokens: list[tuple[float, ...]], config: LossConfig) -> None:
    torch: Any = pytest.importorskip("torch")
    from auditrl.policy.losses import policy_loss

    logprobs, sampling, start, advantages = (np.asarray(column) for column in zip(*tokens, strict=True))
    variable = torch.tensor(logprobs, requires_grad=True)
    loss, sums = policy_loss(variable, torch.tensor(sampling), torch.tensor(advantages), config, start=torch.tensor(start))
    (loss / len(tokens)).backward()
    found = token_loss(logprobs, sampling, advantages, config, start)
    assert found.value == pytest.approx(float(loss.detach()) / len(tokens), abs=1e-9)
    np.testing.assert_allclose(found.gradient, variable.grad.numpy(), atol=1e-9)
    assert found.metrics["clip_share"] * len(tokens) == pytest.approx(sums.clipped)
    assert found.metrics["masked_share"] * len(tokens) == pytest.approx(sums.masked)
    assert found.metrics["ratio_max"] == pytest.approx(sums.ratio_max)


@pytest.mark.parametrize("reduction", ["sum", "sequence_mean"])
def test_weights_undo_the_servers_reduction(reduction: Literal["sum", "sequence_mean"]) -> None:
    segments = trained_only(batch())
    assert [len(s.tokens) for s in segments] == [9, 12, 4] and all(s.mask[-1] for s in segments[1:2])
    count = sum(sum(s.mask) for s in segments)
    wanted = np.random.default_rng(0).normal(size=count)
    rows = weights_for(segments, wanted, reduction)
    seen: list[float] = []
    for segment, row in zip(segments, rows, strict=True):
        mask = np.asarray(segment.mask[1:], dtype=bool)
        assert not row[~mask].any()
        share = 1.0 if reduction == "sum" else 1 / mask.sum() / len(segments)
        seen += list(-row[mask] * share)
    np.testing.assert_allclose(seen, wanted, rtol=1e-12)


@pytest.mark.parametrize("loss", [LossConfig(), LossConfig(ratio_mask=None), LossConfig(kind="importance_sampling", kl_coef=0.2)])
def test_every_kind_of_server_makes_the_same_update(server: FakeServer, loss: LossConfig) -> None:
    def trained(kind: Kind) -> tuple[dict[str, float], np.ndarray]:
        async def work() -> tuple[dict[str, float], np.ndarray]:
            engine = engine_for(server, kind)
            await engine.start()
            for _ in range(2):
                metrics = (await engine.train_step(batch(), loss=loss, adam=ADAM)).values
            assert engine.step == 2
            (weights,) = server.adapters.values()
            logits = weights.logits.copy()
            server.adapters.clear()
            return metrics, logits

        return run(work)

    results = [trained(kind) for kind in KINDS]
    for metrics, logits in results[1:]:
        np.testing.assert_allclose(logits, results[0][1], atol=1e-9)
        assert {k: v for k, v in metrics.items() if "seconds" not in k and "_per_s" not in k} == pytest.approx(
            {k: v for k, v in results[0][0].items() if "seconds" not in k and "_per_s" not in k}
        )
    metrics = results[0][0]
    assert metrics["tokens"] == 34 and metrics["trained_tokens"] == 11 and metrics["skipped"] == 0 and metrics["grad_norm"] > 0
    one_pass = loss.ratio_mask is None and not loss.kl_coef
    assert server.requests.count("forward") == (0 if one_pass else 6)


def test_nothing_to_train_on_asks_the_server_for_nothing(server: FakeServer) -> None:
    async def work() -> dict[str, float]:
        engine = engine_for(server)
        await engine.start()
        return (await engine.train_step(batch()[1:2], loss=LossConfig(), adam=ADAM)).values

    metrics = run(work)
    assert metrics["skipped"] == 1 and metrics["trained_tokens"] == 0
    assert server.requests == ["get_server_capabilities"]


# ---------------------------------------------------------------- sampling and snapshots


async def draw(engine: TinkerEngine, ref: PolicyRef, seed: int = 3) -> tuple[list[int], list[float]]:
    sampled = await engine.sampler(ref).sample([1, 2], max_tokens=8, temperature=1.0, stop=[0], seed=seed)
    return sampled.tokens, sampled.logprobs


@pytest.mark.parametrize("kind", KINDS)
def test_a_snapshot_stays_what_it_was_and_leaves_training_alone(server: FakeServer, kind: Kind) -> None:
    async def work() -> None:
        engine = engine_for(server, kind)
        await engine.start()
        at_start = await draw(engine, CURRENT)
        old = await engine.publish("reference")
        assert await draw(engine, old) == at_start
        await engine.train_step(batch(), loss=LossConfig(), adam=AdamConfig(lr=0.5))
        moved = await draw(engine, CURRENT)
        assert moved[1] != at_start[1]
        assert await draw(engine, old) == at_start
        assert await draw(engine, CURRENT) == moved, "sampling a snapshot must not change what is trained"

    run(work)


def test_the_current_sampler_is_made_once_an_update(server: FakeServer) -> None:
    async def work() -> None:
        engine = engine_for(server)
        await engine.start()
        await asyncio.gather(*(draw(engine, CURRENT, seed) for seed in range(5)))
        await engine.train_step(batch(), loss=LossConfig(), adam=ADAM)
        await asyncio.gather(*(draw(engine, CURRENT, seed) for seed in range(5)))

    run(work)
    assert server.requests.count("save_weights_for_sampler") == 2
    assert server.requests.count("create_model") == 1


@pytest.mark.parametrize("kind", KINDS)
def test_released_snapshots_are_freed_at_the_server(server: FakeServer, kind: Kind) -> None:
    async def work() -> None:
        engine = engine_for(server, kind)
        await engine.start()
        for _ in range(20):  # more than there is room for
            await engine.publish("reference")
        assert len(server.adapters) + len(server.states) <= 3
        await engine.close()
        assert not server.states and (kind == "tinker" or not server.adapters)

    run(work)


def test_a_released_snapshot_can_not_be_sampled(server: FakeServer) -> None:
    async def work() -> None:
        engine = engine_for(server)
        await engine.start()
        sampler = engine.sampler(await engine.publish("reference"))
        engine.release("reference")
        engine.release("never published")
        with pytest.raises(ProviderError, match="was released while it was sampled"):
            await sampler.sample([1], max_tokens=1, temperature=1.0, stop=[], seed=0)
        with pytest.raises(RunError, match="no policy was published"):
            engine.sampler(PolicyRef("reference"))
        with pytest.raises(ConfigError, match="policy in training"):
            await engine.publish("current")
        with pytest.raises(ProviderError, match="empty prompt"):
            await engine.sampler(CURRENT).sample([], max_tokens=1, temperature=1.0, stop=[], seed=0)

    run(work)


def test_samples_repeat_by_seed_and_end_at_a_stop_token(server: FakeServer) -> None:
    async def work() -> None:
        engine = engine_for(server)
        await engine.start()
        assert engine.context_tokens == 64
        assert await draw(engine, CURRENT, 2**63 + 5) == await draw(engine, CURRENT, 2**63 + 5)
        sampled = await engine.sampler(CURRENT).sample([1, 2], max_tokens=50, temperature=1.0, stop=[3], seed=1)
        assert sampled.stop_reason == "stop" and sampled.tokens[-1] == 3 and 3 not in sampled.tokens[:-1]
        assert len(sampled.logprobs) == len(sampled.tokens)
        first, second = [await draw(engine, CURRENT, None) for _ in range(2)]  # type: ignore[arg-type]
        assert first != second

    run(work)


# ---------------------------------------------------------------- checkpoints


def test_a_resumed_engine_goes_on_as_if_it_had_not_stopped(server: FakeServer, tmp_path: Path) -> None:
    async def whole() -> tuple[list[int], list[float]]:
        engine = engine_for(server)
        await engine.start()
        for _ in range(2):
            await engine.train_step(batch(), loss=LossConfig(), adam=ADAM)
        assert await engine.save(str(tmp_path / "step-0002")) == str(tmp_path / "step-0002")
        await engine.train_step(batch(), loss=LossConfig(), adam=ADAM)
        return await draw(engine, CURRENT)

    async def resumed() -> tuple[list[int], list[float]]:
        engine = engine_for(server)
        await engine.start()
        await engine.load(str(tmp_path / "step-0002"))
        assert engine.step == 2
        await engine.publish("reference")
        await engine.load(str(tmp_path / "step-0002"))
        assert len(server.adapters) == 2, "the adapter before is given back"
        await engine.train_step(batch(), loss=LossConfig(), adam=ADAM)
        return await draw(engine, CURRENT)

    expected = run(whole)
    server.adapters.clear()  # the session of the first process is over
    assert run(resumed) == expected


def test_a_checkpoint_is_sampled_by_its_uri_and_replaced_whole(server: FakeServer, tmp_path: Path) -> None:
    async def work() -> None:
        engine = engine_for(server)
        await engine.start()
        at_start = await draw(engine, CURRENT)
        uri = await engine.save(str(tmp_path / "step-0000"))
        await engine.train_step(batch(), loss=LossConfig(), adam=ADAM)
        assert await draw(engine, PolicyRef("old", uri)) == at_start
        await engine.save(uri)
        assert len(server.states) == 1, "the state that the folder named before is deleted"
        assert [p.name for p in tmp_path.iterdir()] == ["step-0000"]

    run(work)


def broken(folder: Path, **changes: Any) -> str:
    path = folder / "engine.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return str(folder)


CHECKPOINTS: dict[str, tuple[Callable[[Path], str], str]] = {
    "missing": (lambda f: str(f / "nothing"), "is missing, so .* is not a checkpoint"),
    "unreadable": (lambda f: [(f / "engine.json").write_text("{"), str(f)][1], "can't be read"),
    "local engine": (lambda f: broken(f, method="lora"), 'policy.engine = "local"'),
    "another base": (lambda f: broken(f, base="other/model"), "policy.tinker.base_model"),
    "another rank": (lambda f: broken(f, rank=16), "policy.lora.rank = 16"),
    "another format": (lambda f: broken(f, format=9), "version of auditrl that wrote it"),
    "unknown key": (lambda f: broken(f, colour="red"), "can't be read"),
    "lost at the server": (lambda f: broken(f, uri="tinker://model_9/weights/gone"), "no longer has tinker://model_9"),
}


@pytest.mark.parametrize("case", CHECKPOINTS)
def test_checkpoints_that_can_not_be_used(server: FakeServer, tmp_path: Path, case: str) -> None:
    async def work() -> None:
        engine = engine_for(server)
        await engine.start()
        await engine.save(str(tmp_path / "step-0000"))
        make, message = CHECKPOINTS[case]
        with pytest.raises(RunError, match=message):
            await engine.load(make(tmp_path / "step-0000"))
        await draw(engine, CURRENT)
        assert len(server.adapters) == 1

    run(work)


def test_a_checkpoint_at_a_server_is_no_model_folder(server: FakeServer, tmp_path: Path) -> None:
    from auditrl.policy.model import PolicyAPI

    async def work() -> str:
        engine = engine_for(server)
        await engine.start()
        return await engine.save(str(tmp_path / "step-0000"))

    with pytest.raises(ConfigError, match="Name RUN@STEP instead"):
        PolicyAPI(run(work))


def test_a_folder_that_can_not_be_written(server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    async def work() -> None:
        engine = engine_for(server)
        await engine.start()
        with pytest.raises(RunError, match="can't be written"):
            await engine.save(str(tmp_path / "file" / "step-0000"))

    run(work)


# ---------------------------------------------------------------- servers that misbehave

STARTS: dict[str, tuple[dict[str, Exception], type[AuditrlError], str]] = {
    "wrong key": ({"get_server_capabilities": StatusError(401, "bad key")}, ConfigError, "TINKER_API_KEY is refused"),
    "old SDK": ({"get_server_capabilities": StatusError(426, "please upgrade")}, ConfigError, "please upgrade.*pip install"),
    "server error": ({"get_server_capabilities": StatusError(500, "boom")}, ProviderError, "boom.*auditrl resume"),
}


@pytest.mark.parametrize("case", STARTS)
def test_a_session_that_is_refused(server: FakeServer, case: str) -> None:
    errors, kind, message = STARTS[case]
    server.broken |= errors
    with pytest.raises(kind, match=message):
        run(engine_for(server).start)


def test_a_model_that_the_server_does_not_have(server: FakeServer) -> None:
    with pytest.raises(ConfigError, match=r"policy.tinker.base_model: .* has no model 'other/one'. It has: stand-in/bigram"):
        run(TinkerEngine("other/one", server="skyrl-jax", base_url="http://server").start)


def test_requests_that_fail_stop_the_run_resumable(server: FakeServer) -> None:
    async def work() -> None:
        engine = engine_for(server)
        with pytest.raises(ConfigError, match="not started"):
            await engine.save("x")
        await engine.start()
        server.broken = {"create_model": RuntimeError("Maximum number of LoRA adapters reached")}
        with pytest.raises(ProviderError, match="making an adapter: RuntimeError: Maximum number"):
            await draw(engine, CURRENT)
        server.broken = {"forward_backward": RuntimeError("out of memory")}
        with pytest.raises(ProviderError, match="computing the gradient: RuntimeError: out of memory"):
            await engine.train_step(batch(), loss=LossConfig(), adam=ADAM)
        server.broken = {"asample": StatusError(403, "expired")}
        with pytest.raises(ConfigError, match="TINKER_API_KEY is refused"):
            await draw(engine, CURRENT)
        server.broken = {"delete": RuntimeError("not here"), "unload_model": OSError("not here")}
        await engine.publish("reference")
        await engine.publish("reference")
        await engine.close()

    run(work)


def test_skyrl_behind_the_name_of_the_hosted_service(server: FakeServer) -> None:
    async def work() -> None:
        engine = engine_for(server, "tinker")
        await engine.start()
        server.grad_norm = "skyrl.ai/grad_norm"
        with pytest.raises(ConfigError, match='Set it to "skyrl-jax"'):
            await engine.train_step(batch(), loss=LossConfig(), adam=ADAM)

    run(work)


def test_updates_that_are_refused(server: FakeServer) -> None:
    async def work() -> None:
        engine = engine_for(server)
        await engine.start()
        with pytest.raises(ConfigError, match=r"train.weight_decay.*Set it to 0"):
            await engine.train_step(batch(), loss=LossConfig(), adam=replace(ADAM, weight_decay=0.1))
        wrong = batch()
        wrong[0].advantage = float("nan")
        with pytest.raises(RewardError, match="advantage is nan"):
            await engine.train_step(wrong, loss=LossConfig(), adam=ADAM)
        wrong = batch()
        wrong[0].logprobs[-1] = float("nan")
        assert wrong[0].mask[-1]
        metrics = (await engine.train_step(wrong, loss=LossConfig(), adam=ADAM)).values
        assert metrics["skipped"] == 1 and engine.step == 0 and "optim_step" not in server.requests
        with pytest.raises(ProviderError, match="not finite"):
            await engine.train_step(wrong, loss=LossConfig(ratio_mask=None), adam=ADAM)

    run(work)


@pytest.mark.parametrize(
    ("kind", "version", "message"),
    [
        ("skyrl-jax", "0.38.0", r"SkyRL 0.4 speaks with tinker 0.25, and 0.38.0 is installed"),
        ("tinker", "0.38.0", None),
        ("skyrl", "0.25.3", None),
    ],
)
def test_sdk_versions(monkeypatch: pytest.MonkeyPatch, kind: Kind, version: str, message: str | None) -> None:
    monkeypatch.setitem(sys.modules, "tinker", FakeServer().module(version))
    if message is None:
        assert sdk(kind).__version__ == version
    else:
        with pytest.raises(ConfigError, match=message):
            sdk(kind)


def test_no_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tinker", None)
    with pytest.raises(ConfigError, match=r'pip install "auditrl\[tinker\]"'):
        sdk("tinker")


@pytest.mark.parametrize(
    ("kind", "environment", "expected"),
    [
        ("tinker", {"TINKER_API_KEY": "tml-1"}, "tml-1"),
        ("tinker", {"TINKER_CREDENTIAL_CMD": "pass show tinker"}, None),
        ("skyrl-jax", {}, "tml-none"),
        ("skyrl-jax", {"TINKER_API_KEY": "tml-1"}, "tml-1"),
    ],
)
def test_keys(monkeypatch: pytest.MonkeyPatch, kind: Kind, environment: dict[str, str], expected: str | None) -> None:
    for name in ("TINKER_API_KEY", "TINKER_CREDENTIAL_CMD"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert api_key(kind) == expected


@pytest.mark.parametrize(("key", "message"), [("", "TINKER_API_KEY is not set"), ("sk-1", "keys start with tml-")])
def test_keys_that_are_none(monkeypatch: pytest.MonkeyPatch, key: str, message: str) -> None:
    monkeypatch.delenv("TINKER_CREDENTIAL_CMD", raising=False)
    monkeypatch.setenv("TINKER_API_KEY", key)
    with pytest.raises(ConfigError, match=message):
        api_key("tinker")


@pytest.fixture
def health() -> Iterator[Callable[[int], str]]:
    """Serves a health page with a status; gives its address."""
    servers: list[HTTPServer] = []

    def serve(status: int) -> str:
        class Page(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status if self.path == "/api/v1/healthz" else 404)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None: ...

        made = HTTPServer(("127.0.0.1", 0), Page)
        servers.append(made)
        threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
        return f"http://127.0.0.1:{made.server_port}"

    yield serve
    for made in servers:
        made.shutdown()
        made.server_close()


@pytest.mark.parametrize(
    ("status", "error", "message"),
    [
        (200, None, ""),
        (503, None, ""),
        (404, ConfigError, "no Tinker server"),
        (401, ConfigError, "refuses the key"),
        (403, ConfigError, "refuses the key"),
    ],
)
def test_what_answers_at_the_address(health: Callable[[int], str], status: int, error: type[AuditrlError] | None, message: str) -> None:
    address = health(status)
    assert probe(address, "tml-1") == status
    if error is None:
        check_answers(address + "/", "tml-1")
    else:
        with pytest.raises(error, match=message):
            check_answers(address, "tml-1")


@pytest.mark.parametrize(
    ("address", "error", "message"),
    [
        ("http://127.0.0.1:9", ProviderError, "nothing answers at http://127.0.0.1:9"),
        ("http://no-such-host.invalid", ProviderError, "nothing answers"),
        ("127.0.0.1:8765", ConfigError, "is no address"),
        ("http://", ConfigError, "is no address"),
    ],
)
def test_addresses_where_nothing_is(address: str, error: type[AuditrlError], message: str) -> None:
    with pytest.raises(error, match=message):
        check_answers(address, None)


@pytest.mark.parametrize("dead", [True, False])
def test_a_wait_ends_when_the_server_is_gone_and_not_before(dead: bool) -> None:
    looks: list[str] = []

    def tell(address: str, key: str | None) -> int:
        looks.append(address)
        if dead or len(looks) % 2:  # a server that stumbles is not gone
            raise OSError("connection refused")
        return 200

    async def work() -> str:
        pulse = Pulse("http://server", "tml-secret", patience_s=0.12, tell=tell)
        assert "secret" not in repr(pulse)
        waits = [pulse.wait(asyncio.sleep(0.6, "answer"), "sampling") for _ in range(3)]
        return (await asyncio.gather(*waits))[0]

    if dead:
        with pytest.raises(ProviderError, match=r"sampling: http://server has not answered for .*auditrl resume"):
            run(work)
    else:
        assert run(work) == "answer"
    assert 2 <= len(looks) <= 25, "one look at a time, whoever waits"


# ---------------------------------------------------------------- configs

BASE = {"engine": "tinker", "model": "owner/model", "method": "lora"}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "full": ({"method": "full"}, "set method = 'lora'"),
    "temperature": ({"temperature": 0.7}, "remove temperature = 0.7"),
    "dropout": ({"lora": {"dropout": 0.1}}, "remove lora.dropout"),
    "which server": ({"tinker": {"base_url": "http://127.0.0.1:8765"}}, "set server = 'skyrl-jax'"),
    "no address": ({"tinker": {"server": "skyrl"}}, "set base_url"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_configs_that_are_refused(case: str) -> None:
    from pydantic import ValidationError

    changes, message = REFUSED[case]
    with pytest.raises(ValidationError) as caught:
        PolicyConfig.model_validate(BASE | changes)
    assert message in describe_validation(caught.value, "run.toml", PolicyConfig)


def test_configs_that_fit() -> None:
    assert PolicyConfig.model_validate(BASE).tinker.server is None
    own: dict[str, Any] = BASE | {"tinker": {"base_url": "http://127.0.0.1:8765", "server": "skyrl-jax"}}
    assert PolicyConfig.model_validate(own).tinker.patience_s == 300


def test_temperature_of_the_engine() -> None:
    with pytest.raises(ConfigError, match=r"policy.temperature: 0.5 must be 1.0"):
        TinkerEngine(MODEL, temperature=0.5)


def test_context_by_the_models_folder(tmp_path: Path) -> None:
    assert context_of(tmp_path) is None
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 512}')
    assert context_of(tmp_path) == 512


def test_a_server_that_moved_is_no_other_run() -> None:
    from auditrl.config import changes_results, load_config, packaged_config

    def config(url: str, *more: tuple[str, str]) -> Any:
        server = [
            ("policy.engine", "tinker"),
            ("policy.method", "lora"),
            ("policy.tinker.server", "skyrl-jax"),
            ("policy.tinker.base_url", url),
        ]
        return load_config(packaged_config("quickstart"), [*server, *more])

    first = config("http://127.0.0.1:8765")
    assert config("http://127.0.0.1:9000", ("policy.tinker.patience_s", "20")).digest == first.digest
    assert config("http://127.0.0.1:8765", ("policy.tinker.base_model", "other")).digest != first.digest
    assert not changes_results("policy.tinker.base_url") and changes_results("policy.tinker.server")


def test_the_workshop_makes_the_engine_that_the_config_names(server: FakeServer) -> None:
    from auditrl.config import load_config, packaged_config
    from auditrl.sim.tiny import SHIPPED
    from auditrl.train.workshop import make_engine

    own = [
        ("policy.engine", "tinker"),
        ("policy.method", "lora"),
        ("policy.tinker.server", "skyrl-jax"),
        ("policy.tinker.base_model", MODEL),
    ]
    engine = make_engine(load_config(packaged_config("quickstart"), [*own, ("policy.tinker.base_url", "http://server")]), SHIPPED)
    assert isinstance(engine, TinkerEngine)
    run(engine.start)
    assert (engine.base_model, engine.rank, engine.context_tokens) == (MODEL, 32, 512)


@pytest.mark.parametrize("installed", [True, False], ids=["server down", "no SDK"])
def test_nothing_is_made_while_sdk_or_server_is_missing(installed: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from auditrl.commands.training import start
    from auditrl.config import load_config, packaged_config
    from auditrl.display import make_display

    monkeypatch.setitem(sys.modules, "tinker", FakeServer().module() if installed else None)
    own = [
        ("policy.engine", "tinker"),
        ("policy.method", "lora"),
        ("policy.tinker.server", "skyrl-jax"),
        ("policy.tinker.base_url", "http://127.0.0.1:9"),
    ]
    with pytest.raises(AuditrlError, match="nothing answers at http://127.0.0.1:9" if installed else "pip install"):
        start(load_config(packaged_config("quickstart"), own), tmp_path, make_display("none"))
    assert not list(tmp_path.iterdir())


def test_no_torch_is_needed() -> None:
    """The extra `tinker` alone is enough: a laptop that trains at a server needs no torch."""
    code = "import sys, auditrl.policy.tinker, auditrl.train.session; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
