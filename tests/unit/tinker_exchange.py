"""A recorded exchange between the Tinker engine and a real server: one scenario, the recorder, and what answers from the record.

`tests/live/test_tinker.py` plays the scenario against a server and can write the record; `test_tinker_replay.py` plays it against the
record, without SDK or network: every request must be the recorded one, and gets the recorded answer.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tinker_stand_in import TYPES, Answer

from auditrl.policy.engine import AdamConfig, LossConfig, PolicyRef
from auditrl.policy.segments import merge_turns
from auditrl.policy.tinker import TinkerEngine

RECORD = Path(__file__).parent / "data" / "tinker_exchange.json"
MODEL = "sim/tiny"
"""In the record, whatever the server calls it."""
PROMPT = [2, 20, 31, 42, 53, 64, 75, 86]
END = 5


def plain(value: Any) -> Any:
    """A request as JSON, whether it was made with the SDK's classes or the stand-in's."""
    if hasattr(value, "loss_fn_inputs"):
        inputs = {name: np.asarray(getattr(v, "data", v)).ravel().tolist() for name, v in value.loss_fn_inputs.items()}
        return {"input": plain(value.model_input), **{k: [shortened(float(x)) for x in row] for k, row in sorted(inputs.items())}}
    if hasattr(value, "to_ints"):
        return [int(token) for token in value.to_ints()]
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    names = ("max_tokens", "temperature", "stop", "seed", "learning_rate", "beta1", "beta2", "eps", "weight_decay", "grad_clip_norm")
    found = {name: getattr(value, name) for name in names if hasattr(value, name)}
    return {name: list(v) if isinstance(v, list | tuple) else v for name, v in found.items()} or value


def shortened(number: float) -> float:
    return float(f"{number:.7g}")


def encoded(answer: Any) -> Any:
    """What the engine reads of an answer, as JSON."""
    if hasattr(answer, "loss_fn_outputs"):
        return {"logprobs": [[shortened(float(v)) for v in output["logprobs"].data] for output in answer.loss_fn_outputs]}
    if hasattr(answer, "sequences"):
        (one,) = answer.sequences
        return {"tokens": list(one.tokens), "logprobs": [shortened(p) for p in one.logprobs], "stop_reason": one.stop_reason}
    if hasattr(answer, "supported_models"):
        return {"models": [[m.model_name, m.max_context_length] for m in answer.supported_models]}
    if isinstance(answer, list):
        return {"values": [None if v is None else shortened(v) for v in answer]}
    return {name: getattr(answer, name) for name in ("model_id", "path", "metrics") if hasattr(answer, name)}


def decoded(data: dict[str, Any]) -> Any:
    """A recorded answer as the engine reads it."""
    if "stop_reason" in data:
        return SimpleNamespace(sequences=[SimpleNamespace(**data)])
    if "logprobs" in data:
        return SimpleNamespace(loss_fn_outputs=[{"logprobs": SimpleNamespace(data=row)} for row in data["logprobs"]])
    if "models" in data:
        return SimpleNamespace(supported_models=[SimpleNamespace(model_name=n, max_context_length=c) for n, c in data["models"]])
    if "values" in data:
        return data["values"]
    return SimpleNamespace(**data)


@dataclass
class Exchange:
    """Requests and answers in order. With `real` (the SDK) they are recorded, without it they are answered from the record."""

    real: Any = None
    calls: list[dict[str, Any]] = field(default_factory=list)
    done: int = 0

    def module(self) -> Any:
        """What `import tinker` gives."""

        def service(**arguments: Any) -> Service:
            return Service(self, None if self.real is None else self.real.ServiceClient(**arguments))

        types = TYPES if self.real is None else self.real.types
        return SimpleNamespace(__version__="0.25.0", types=types, ServiceClient=service)

    def answered(self, request: str, arguments: Any, ask: Callable[[], Any]) -> Any:
        """The answer of a request that is not awaited."""
        return self.written(request, plain(arguments), ask()) if self.real is not None else self.looked_up(request, plain(arguments))

    async def awaited(self, request: str, arguments: Any, ask: Callable[[], Awaitable[Any]]) -> Any:
        """The answer of a request that is awaited."""
        if self.real is None:
            return self.looked_up(request, plain(arguments))
        place = self.opened(request, plain(arguments))
        answer = await ask()
        place["answer"] = encoded(answer)
        return answer

    def opened(self, request: str, arguments: Any) -> dict[str, Any]:
        self.calls.append({"request": request, "arguments": arguments})
        return self.calls[-1]

    def written(self, request: str, arguments: Any, answer: Any) -> Any:
        self.opened(request, arguments)["answer"] = encoded(answer)
        return answer

    def looked_up(self, request: str, arguments: Any) -> Any:
        call = self.calls[self.done]
        self.done += 1
        assert (request, self.done) == (call["request"], self.done)
        assert_same(arguments, call["arguments"], request)
        return decoded(call["answer"])


def assert_same(found: Any, expected: Any, where: str) -> None:
    """Equal but for the last digits of numbers."""
    if isinstance(expected, list):
        assert len(found) == len(expected), where
        for i, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_same(one, other, f"{where}[{i}]")
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for name, other in expected.items():
            assert_same(found[name], other, f"{where}.{name}")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-7), where
    else:
        assert found == expected, where


class Later:
    """A request that was sent and is awaited later, like the SDK's futures."""

    def __init__(self, work: Awaitable[Any]) -> None:
        self.work = work

    def __await__(self) -> Iterator[Any]:
        return (yield from self.work.__await__())


@dataclass
class Service:
    exchange: Exchange
    real: Any

    def get_server_capabilities(self) -> Any:
        return self.exchange.answered("get_server_capabilities", [], lambda: self.real.get_server_capabilities())

    async def create_lora_training_client_async(self, **arguments: Any) -> Adapter:
        settings = [[name, value] for name, value in sorted(arguments.items())]
        made = await self.exchange.awaited("create_model", settings, lambda: self.real.create_lora_training_client_async(**arguments))
        return Adapter(self.exchange, made)

    async def create_sampling_client_async(self, **arguments: Any) -> Sampler:
        settings = [[name, value] for name, value in sorted(arguments.items())]
        return Sampler(
            self.exchange,
            await self.exchange.awaited("create_sampler", settings, lambda: self.real.create_sampling_client_async(**arguments)),
        )

    def create_rest_client(self) -> Any:
        async def delete(path: str) -> None:
            await self.exchange.awaited(
                "delete", [path], lambda: self.real.create_rest_client().delete_checkpoint_from_tinker_path_async(path)
            )

        return SimpleNamespace(delete_checkpoint_from_tinker_path_async=delete)


@dataclass
class Adapter:
    exchange: Exchange
    real: Any

    @property
    def model_id(self) -> str:
        return self.real.model_id

    def sent(self, request: str, arguments: list[Any], ask: Callable[[], Any]) -> Any:
        """Sent now (the order counts), awaited later."""
        if self.exchange.real is None:
            return Answer(self.exchange.looked_up(request, plain(arguments)))
        place, future = self.exchange.opened(request, plain(arguments)), ask()

        async def wait() -> Any:
            answer = await future
            place["answer"] = encoded(answer)
            return answer

        return Later(wait())

    def forward(self, data: Any, loss_fn: str) -> Any:
        return self.sent("forward", [data, loss_fn], lambda: self.real.forward(data, loss_fn))

    def forward_backward(self, data: Any, loss_fn: str, config: Any) -> Any:
        settings = None if config is None else [[name, value] for name, value in sorted(config.items())]
        return self.sent("forward_backward", [data, loss_fn, settings], lambda: self.real.forward_backward(data, loss_fn, config))

    def optim_step(self, adam: Any) -> Any:
        return self.sent("optim_step", [adam], lambda: self.real.optim_step(adam))

    def save_state(self, name: str) -> Any:
        return self.sent("save_state", [name.rsplit("-", 1)[0]], lambda: self.real.save_state(name))

    def save_weights_for_sampler(self, name: str) -> Any:
        return self.sent("save_weights_for_sampler", [name.rsplit("-", 1)[0]], lambda: self.real.save_weights_for_sampler(name))

    def load_state(self, path: str) -> Any:
        return self.sent("load_state", [path], lambda: self.real.load_state(path))

    def load_state_with_optimizer(self, path: str) -> Any:
        return self.sent("load_state_with_optimizer", [path], lambda: self.real.load_state_with_optimizer(path))

    async def save_weights_and_get_sampling_client_async(self) -> Sampler:
        made = await self.exchange.awaited("sampler_of_adapter", [], lambda: self.real.save_weights_and_get_sampling_client_async())
        return Sampler(self.exchange, made)


@dataclass
class Sampler:
    exchange: Exchange
    real: Any

    async def sample_async(self, prompt: Any, number: int, settings: Any) -> Any:
        return await self.exchange.awaited("sample", [prompt, number, settings], lambda: self.real.sample_async(prompt, number, settings))

    async def compute_logprobs_async(self, prompt: Any) -> Any:
        return await self.exchange.awaited("compute_logprobs", [prompt], lambda: self.real.compute_logprobs_async(prompt))


async def scenario(make: Callable[[], TinkerEngine], folder: Path) -> dict[str, Any]:
    """Two audits' worth of samples, a snapshot, three updates (each kind of loss), a checkpoint, and an engine that resumes from it."""
    results: dict[str, Any] = {}

    async def draw(engine: TinkerEngine, ref: PolicyRef, seed: int) -> Any:
        return await engine.sampler(ref).sample(PROMPT, max_tokens=12, temperature=1.0, stop=[END], seed=seed)

    engine = make()
    await engine.start()
    samples = [await draw(engine, PolicyRef("current"), seed) for seed in (1, 2)]
    reference = await engine.publish("reference")
    # the second sample is put behind a shorter prompt than it was drawn after, so that its ratios are not 1
    segments = [
        *merge_turns([(PROMPT, samples[0])], audit_id="a", advantage=1.0),
        *merge_turns([(PROMPT[:5], samples[1])], audit_id="b", advantage=-0.6),
    ]
    for name, loss in {"masked": LossConfig(), "penalty": LossConfig(kl_coef=0.1), "one pass": LossConfig(ratio_mask=None)}.items():
        metrics = (await engine.train_step(segments, loss=loss, adam=AdamConfig(lr=1e-3))).values
        results[name] = {key: value for key, value in metrics.items() if "second" not in key and "per_s" not in key}
        if name == "masked":
            uri = await engine.save(str(folder / "step-0001"))
    results["before"], results["snapshot"] = samples[0].logprobs, (await draw(engine, reference, 1)).logprobs
    results["after"] = (await draw(engine, PolicyRef("current"), 1)).logprobs
    engine.release("reference")
    await engine.close()

    second = make()
    await second.start()
    await second.load(uri)
    for name, loss in {"penalty": LossConfig(kl_coef=0.1), "one pass": LossConfig(ratio_mask=None)}.items():
        metrics = (await second.train_step(segments, loss=loss, adam=AdamConfig(lr=1e-3))).values
        results[f"{name} resumed"] = {key: value for key, value in metrics.items() if "second" not in key and "per_s" not in key}
    results["after resumed"] = (await draw(second, PolicyRef("current"), 1)).logprobs
    await second.close()
    return results


def check(results: dict[str, Any], close: float) -> None:
    """What must hold against any server."""
    assert results["snapshot"] == pytest.approx(results["before"], abs=close), "updates must not change a snapshot"
    assert results["after"][0] != pytest.approx(results["before"][0], abs=1e-2), "updates must change the policy"
    assert results["after resumed"] == pytest.approx(results["after"], abs=close), "a resumed run must go on exactly"
    for name in ("penalty", "one pass"):
        assert results[f"{name} resumed"] == pytest.approx(results[name], rel=1e-3, abs=close)
    assert results["masked"]["ratio_mean"] != 0 and results["masked"]["grad_norm"] > 0 and results["penalty"]["kl_start"] > 0


def write(exchange: Exchange, results: dict[str, Any], base_model: str) -> None:
    """Write the record, under a name of the model that holds everywhere."""
    text = json.dumps({"calls": exchange.calls, "results": results}, indent=None, separators=(",", ":")).replace(
        json.dumps(base_model)[1:-1], MODEL
    )
    RECORD.parent.mkdir(exist_ok=True)
    RECORD.write_text(text.replace('{"request"', '\n{"request"') + "\n", encoding="utf-8")
