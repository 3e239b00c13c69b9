"""A stand-in for the `tinker` package: a server in this process, with a bigram model, so that the engine is tested without SDK or network.

It keeps the habits of the real ones that the engine has to live with: the reductions, one copy of an adapter for training and sampling
(SkyRL), states that only a new adapter can load, names that can't be used twice, and room for a fixed number of adapters.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np

VOCABULARY = 12
MODEL = "stand-in/bigram"


class StatusError(Exception):
    """An answer with an HTTP status, as the SDK raises it."""

    def __init__(self, status_code: int, text: str) -> None:
        super().__init__(text)
        self.status_code = status_code


@dataclass
class ModelInput:
    tokens: list[int]

    @classmethod
    def from_ints(cls, tokens: list[int]) -> ModelInput:
        return cls(tokens)

    def to_ints(self) -> list[int]:
        return self.tokens


@dataclass
class Datum:
    model_input: ModelInput
    loss_fn_inputs: dict[str, Any]


@dataclass
class SamplingParams:
    max_tokens: int
    temperature: float
    stop: list[int]
    seed: int


@dataclass
class AdamParams:
    learning_rate: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    grad_clip_norm: float


TYPES = SimpleNamespace(ModelInput=ModelInput, Datum=Datum, SamplingParams=SamplingParams, AdamParams=AdamParams)


class Answer:
    """A finished request: awaited like the SDK's futures."""

    def __init__(self, value: Any = None, error: Exception | None = None) -> None:
        self.value, self.error = value, error

    def __await__(self) -> Iterator[Any]:
        if self.error is not None:
            raise self.error
        return self.value
        yield


@dataclass
class Weights:
    """Logits after each token, shape (V, V), and the optimiser's state."""

    logits: np.ndarray
    first: np.ndarray
    second: np.ndarray
    updates: int = 0


def new_weights(seed: int) -> Weights:
    start = np.random.default_rng(seed).normal(size=(VOCABULARY, VOCABULARY))
    return Weights(start, np.zeros_like(start), np.zeros_like(start))


def log_softmax(logits: np.ndarray) -> np.ndarray:
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


@dataclass
class FakeServer:
    """What lies at the server. `kind` decides about reduction and snapshots."""

    kind: Literal["tinker", "skyrl", "skyrl-jax"] = "skyrl-jax"
    room: int = 6
    grad_norm: str = "grad_norm"
    broken: dict[str, Exception] = field(default_factory=dict)
    """Errors by the name of the request that they answer."""
    adapters: dict[str, Weights] = field(default_factory=dict)
    states: dict[str, Weights] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    made: int = 0

    def asked(self, request: str) -> None:
        self.requests.append(request)
        if request in self.broken:
            raise self.broken[request]

    def module(self, version: str = "0.25.0") -> Any:
        """What `import tinker` gives."""
        return SimpleNamespace(__version__=version, types=TYPES, ServiceClient=lambda **_: FakeService(self))

    def unload(self, model_id: str) -> None:
        self.asked("unload_model")
        self.adapters.pop(model_id, None)

    def save(self, name: str, weights: Weights) -> str:
        if name in self.states:
            raise StatusError(409, f"{name} exists")
        self.states[name] = copy.deepcopy(weights)
        return name


@dataclass
class FakeService:
    server: FakeServer

    def get_server_capabilities(self) -> Any:
        self.server.asked("get_server_capabilities")
        return SimpleNamespace(supported_models=[SimpleNamespace(model_name=MODEL, max_context_length=64)])

    async def create_lora_training_client_async(self, base_model: str, rank: int, seed: int, train_unembed: bool) -> FakeAdapter:
        self.server.asked("create_model")
        assert base_model == MODEL and rank > 0 and not train_unembed and seed >= 0
        if len(self.server.adapters) >= self.server.room:
            raise RuntimeError("Maximum number of LoRA adapters reached")
        self.server.made += 1
        model_id = f"model_{self.server.made}"
        self.server.adapters[model_id] = new_weights(0)
        return FakeAdapter(self.server, model_id)

    async def create_sampling_client_async(self, model_path: str | None = None, base_model: str | None = None) -> FakeSampler:
        self.server.asked("create_sampling_session")
        if base_model is not None:
            return FakeSampler(self.server, weights=new_weights(0))
        assert model_path is not None
        return FakeSampler(self.server, weights=self.server.states[model_path])

    def create_rest_client(self) -> Any:
        async def delete(path: str) -> None:
            self.server.asked("delete")
            self.server.states.pop(path)

        return SimpleNamespace(delete_checkpoint_from_tinker_path_async=delete)


@dataclass
class FakeAdapter:
    server: FakeServer
    model_id: str
    gradient: np.ndarray | None = None
    used: bool = False

    @property
    def weights(self) -> Weights:
        return self.server.adapters[self.model_id]

    def answer(self, request: str, work: Any) -> Answer:
        try:
            self.server.asked(request)
            value = work()
        except Exception as error:
            return Answer(error=error)
        self.used = True
        return Answer(value)

    def forward(self, data: list[Datum], loss_fn: str, loss_fn_config: Any = None) -> Answer:
        return self.answer("forward", lambda: self.passed(data)[0])

    def forward_backward(self, data: list[Datum], loss_fn: str, loss_fn_config: dict[str, float] | None = None) -> Answer:
        def work() -> Any:
            output, rows = self.passed(data)
            self.gradient = np.zeros_like(self.weights.logits)
            for datum, logprobs in zip(data, rows, strict=True):
                per_token = self.token_gradient(datum, logprobs, loss_fn, loss_fn_config)
                for before, after, weight in zip(datum.model_input.tokens, datum.loss_fn_inputs["target_tokens"], per_token, strict=True):
                    change = -np.exp(log_softmax(self.weights.logits[before]))
                    change[after] += 1
                    self.gradient[before] += weight * change
            return output

        return self.answer("forward_backward", work)

    def token_gradient(self, datum: Datum, logprobs: np.ndarray, loss_fn: str, config: dict[str, float] | None) -> np.ndarray:
        """Of the server's loss with respect to each log-probability."""
        inputs = {name: np.asarray(values, dtype=float) for name, values in datum.loss_fn_inputs.items()}
        ratio, advantages = np.exp(logprobs - inputs["logprobs"]), inputs["advantages"]
        gradient = -ratio * advantages
        if loss_fn == "ppo":
            assert config is not None
            bounded = np.clip(ratio, config["clip_low_threshold"], config["clip_high_threshold"]) * advantages
            gradient = np.where(bounded < ratio * advantages, 0.0, gradient)
        else:
            assert loss_fn == "importance_sampling" and config is None
        if self.server.kind == "tinker":
            assert "weights" not in inputs
            return gradient
        gradient = gradient * inputs["weights"]
        return gradient / inputs["weights"].sum() / self.batch if self.server.kind == "skyrl-jax" else gradient

    def passed(self, data: list[Datum]) -> tuple[Any, list[np.ndarray]]:
        self.batch = len(data)
        table = log_softmax(self.weights.logits)
        rows = [table[np.asarray(d.model_input.tokens), np.asarray(d.loss_fn_inputs["target_tokens"])] for d in data]
        outputs = [{"logprobs": SimpleNamespace(data=row.tolist())} for row in rows]
        return SimpleNamespace(loss_fn_outputs=outputs, metrics={}), rows

    def optim_step(self, adam: AdamParams) -> Answer:
        def work() -> Any:
            weights, gradient = self.weights, self.gradient
            assert gradient is not None
            weights.updates += 1
            weights.first = adam.beta1 * weights.first + (1 - adam.beta1) * gradient
            weights.second = adam.beta2 * weights.second + (1 - adam.beta2) * gradient**2
            first, second = weights.first / (1 - adam.beta1**weights.updates), weights.second / (1 - adam.beta2**weights.updates)
            weights.logits = weights.logits - adam.learning_rate * first / (np.sqrt(second) + adam.eps)
            return SimpleNamespace(metrics={self.server.grad_norm: float(np.linalg.norm(gradient))})

        return self.answer("optim_step", work)

    def save_state(self, name: str) -> Answer:
        path = f"tinker://{self.model_id}/weights/{name}"
        return self.answer("save_weights", lambda: SimpleNamespace(path=self.server.save(path, self.weights)))

    def save_weights_for_sampler(self, name: str) -> Answer:
        path = f"tinker://{self.model_id}/sampler_weights/{name}"
        return self.answer("save_weights_for_sampler", lambda: SimpleNamespace(path=self.server.save(path, self.weights)))

    async def save_weights_and_get_sampling_client_async(self) -> FakeSampler:
        self.server.asked("save_weights_for_sampler")
        if self.server.kind == "tinker":
            return FakeSampler(self.server, weights=copy.deepcopy(self.weights))
        return FakeSampler(self.server, model_id=self.model_id)

    def load_state(self, path: str) -> Answer:
        return self.answer("load_weights", lambda: self.loaded(path, optimizer=False))

    def load_state_with_optimizer(self, path: str) -> Answer:
        return self.answer("load_weights", lambda: self.loaded(path, optimizer=True))

    def loaded(self, path: str, *, optimizer: bool) -> None:
        if self.used:
            raise StatusError(400, "LoadWeights is not permitted")
        if path not in self.server.states:
            raise StatusError(404, f"Checkpoint not found: {path}")
        saved = copy.deepcopy(self.server.states[path])
        start = new_weights(0)
        self.server.adapters[self.model_id] = saved if optimizer else Weights(saved.logits, start.first, start.second)


@dataclass
class FakeSampler:
    """Samples given weights, or (SkyRL) whatever the adapter holds when it is asked."""

    server: FakeServer
    weights: Weights | None = None
    model_id: str | None = None

    def table(self) -> np.ndarray:
        if self.model_id is not None:
            return log_softmax(self.server.adapters[self.model_id].logits)
        assert self.weights is not None
        return log_softmax(self.weights.logits)

    async def sample_async(self, prompt: ModelInput, num_samples: int, sampling_params: SamplingParams) -> Any:
        self.server.asked("asample")
        assert num_samples == 1 and 0 <= sampling_params.seed < 2**31
        noise, table, tokens, logprobs, last = np.random.default_rng(sampling_params.seed), self.table(), [], [], prompt.tokens[-1]
        while len(tokens) < sampling_params.max_tokens and (not tokens or last not in sampling_params.stop):
            row = table[last]
            last = int(row.argmax()) if sampling_params.temperature == 0 else int(noise.choice(VOCABULARY, p=np.exp(row)))
            tokens.append(last)
            logprobs.append(float(row[last]))
        reason = "stop" if last in sampling_params.stop else "length"
        return SimpleNamespace(sequences=[SimpleNamespace(tokens=tokens, logprobs=logprobs, stop_reason=reason)])

    async def compute_logprobs_async(self, prompt: ModelInput) -> list[float | None]:
        tokens = np.asarray(prompt.tokens)
        values = [float(v) for v in self.table()[tokens[:-1], tokens[1:]]]
        return [None, *values] if self.server.kind == "tinker" else values
