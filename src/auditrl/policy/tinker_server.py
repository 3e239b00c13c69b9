"""The way to a Tinker server: the SDK, the key, the address, and errors that say what to mend.

Three kinds of server speak the same protocol, and differ where the protocol says nothing:

| kind | what it is | adds tokens up | a snapshot beside training | clips the gradient |
|---|---|---|---|---|
| `tinker` | the hosted service | sum | sampler weights | yes |
| `skyrl` | SkyRL 0.4 with Megatron (or FSDP, which holds one adapter: no snapshots) | sum | an adapter of its own | by its own config |
| `skyrl-jax` | SkyRL 0.4 with JAX | mean of segments' means | an adapter of its own | no |

SkyRL 0.4 keeps one copy of an adapter for training and for sampling. Its JAX backend then answers for an earlier snapshot with the
weights in training, or loads the snapshot over them (measured; see `docs/scale.md`), and its other backends sample an adapter's newest
weights whatever snapshot is named. So there a snapshot becomes an adapter of its own, which is never trained.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal

from ..errors import AuditrlError, ConfigError, ProviderError
from .tinker_loss import Reduction

__all__ = ["HOSTED", "TRAITS", "Connection", "Pulse", "ServerKind", "Traits", "check_answers", "connect", "post", "sdk", "translated"]

logger = logging.getLogger(__name__)

ServerKind = Literal["tinker", "skyrl", "skyrl-jax"]

HOSTED = "https://tinker.thinkingmachines.dev/services/tinker-prod"
"""Where the SDK goes without an address."""

_ANY_KEY = "tml-none"
"""One's own server does not check keys, but the SDK wants one."""
_PROBE_S = 10.0


@dataclass(frozen=True, slots=True)
class Traits:
    """What is different between kinds of server."""

    reduction: Reduction
    twins: bool
    """A snapshot needs an adapter of its own."""
    masks: bool
    """Takes `weights` beside policy losses."""
    clips: bool
    """Clips the gradient as it is asked to."""


TRAITS: dict[ServerKind, Traits] = {
    "tinker": Traits("sum", twins=False, masks=False, clips=True),
    "skyrl": Traits("sum", twins=True, masks=True, clips=False),
    "skyrl-jax": Traits("sequence_mean", twins=True, masks=True, clips=False),
}


def sdk(kind: ServerKind) -> Any:
    """The `tinker` package.

    Raises:
        ConfigError: It is not installed, or SkyRL does not speak with its version.
    """
    try:
        module: Any = import_module("tinker")
    except ImportError as error:
        raise ConfigError(f'policy.engine = "tinker" needs the SDK ({error}). Install it: pip install "auditrl[tinker]"') from None
    version = str(getattr(module, "__version__", "?"))
    if kind != "tinker" and not version.startswith("0.25."):
        raise ConfigError(
            f"policy.tinker.server = {kind!r}: SkyRL 0.4 speaks with tinker 0.25, and {version} is installed (newer ones train, but can't "
            'sample from it). Install it: pip install "tinker==0.25.*"'
        )
    return module


def api_key(kind: ServerKind) -> str | None:
    """The key from the environment; None leaves it to `TINKER_CREDENTIAL_CMD`.

    Raises:
        ConfigError: The hosted service gets no key, or one of another form.
    """
    key = os.environ.get("TINKER_API_KEY", "")
    if kind != "tinker":
        return key if key.startswith(("tml-", "eyJ")) else _ANY_KEY
    if not key:
        if os.environ.get("TINKER_CREDENTIAL_CMD"):
            return None
        raise ConfigError(
            "TINKER_API_KEY is not set. Export your key, or set policy.tinker.base_url and policy.tinker.server for a server of your own"
        )
    if not key.startswith(("tml-", "eyJ")):
        raise ConfigError("TINKER_API_KEY is no key of the service: keys start with tml-")
    return key


def probe(base_url: str, key: str | None) -> int:
    """Status of the server's health page. OSError (with a reason) if nothing answers."""
    request = urllib.request.Request(f"{base_url.rstrip('/')}/api/v1/healthz", headers={"X-API-Key": key} if key else {})
    try:
        with urllib.request.urlopen(request, timeout=_PROBE_S) as response:
            response.read(1000)
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


def post(base_url: str, page: str, body: dict[str, Any]) -> None:
    """Call a page that the SDK has no method for. OSError if that fails."""
    request = urllib.request.Request(
        f"{base_url.rstrip('/')}/api/v1/{page}", json.dumps(body).encode(), {"Content-Type": "application/json", "X-API-Key": _ANY_KEY}
    )
    with urllib.request.urlopen(request, timeout=_PROBE_S) as response:
        response.read(100_000)


def check_answers(base_url: str, key: str | None, tell: Callable[[str, str | None], int] = probe) -> None:
    """Say what is wrong with an address before the SDK tries it for five minutes.

    Raises:
        ConfigError: The address can't be one, no Tinker server is there, or it refuses the key.
        ProviderError: Nothing answers.
    """
    if not re.match(r"https?://[^/]+", base_url):
        raise ConfigError(f"policy.tinker.base_url = {base_url!r} is no address; write http://HOST:PORT")
    try:
        status = tell(base_url, key)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise ProviderError(
            f"policy.tinker.base_url: nothing answers at {base_url} ({reason}). Start the server (docs/scale.md), or mend the address"
        ) from None
    if status in (401, 403):
        raise ConfigError(f"{base_url} refuses the key in TINKER_API_KEY (HTTP {status}). Export a valid one")
    if status == 404:
        raise ConfigError(
            f"policy.tinker.base_url: something answers at {base_url}, but it is no Tinker server (HTTP 404). Mend the address"
        )


@dataclass(frozen=True, slots=True)
class Connection:
    """An open session."""

    tinker: Any
    """The SDK."""
    service: Any
    """Its `ServiceClient`."""
    address: str
    key: str | None = field(repr=False)
    context_tokens: int | None
    """Longest sequence, if the server tells."""


def reach(kind: ServerKind, base_url: str | None) -> tuple[Any, str, str | None]:
    """Look that SDK, key and server are there, without opening anything. Returns the SDK, the server's address and the key.

    Raises:
        ConfigError: No SDK, another version than the server takes, no key or a refused one, no Tinker server at the address.
        ProviderError: The server does not answer.
    """
    tinker = sdk(kind)
    address = base_url or os.environ.get("TINKER_BASE_URL") or HOSTED
    key = api_key(kind)
    check_answers(address, key)
    return tinker, address, key


def connect(kind: ServerKind, base_url: str | None, base_model: str) -> Connection:
    """Open a session. Blocks: call it in a thread.

    Raises:
        ConfigError: As `reach`, or the server lacks the model.
        ProviderError: The server does not answer.
    """
    tinker, address, key = reach(kind, base_url)
    with translated(f"can't open a session at {address}", starting=True):
        service = tinker.ServiceClient(base_url=address, api_key=key)
        offered = {m.model_name: m.max_context_length for m in service.get_server_capabilities().supported_models}
    if base_model not in offered:
        names = ", ".join(sorted(str(name) for name in offered)) or "none"
        raise ConfigError(
            f"policy.tinker.base_model: {address} has no model {base_model!r}. It has: {names}. Name one of them, with its tokenizer in policy.model"
        )
    return Connection(tinker, service, address, key, offered[base_model])


@contextmanager
def translated(doing: str, *, starting: bool = False) -> Generator[None]:
    """Turn what the SDK raises into an error of ours: a refused key or request is the config's, everything else the server's.

    Raises:
        ConfigError: The server refuses the key, or (while `starting`) the request.
        ProviderError: Anything else.
    """
    try:
        yield
    except AuditrlError:
        raise
    except Exception as error:
        status = getattr(error, "status_code", None)
        text = " ".join(f"{type(error).__name__}: {error}".split())[:500]
        if status in (401, 403):
            raise ConfigError(f"{doing}: the key in TINKER_API_KEY is refused ({text}). Export a valid one") from error
        if starting and isinstance(status, int) and 400 <= status < 500 and status not in (408, 409, 429):
            raise ConfigError(
                f"{doing}: the server refuses this version of the SDK or this request ({text}). Install a version that it takes "
                '(pip install "tinker==0.25.*" for SkyRL 0.4), or mend policy.tinker'
            ) from error
        raise ProviderError(f"{doing}: {text}. See the server's log, then `auditrl resume`") from error


@dataclass(slots=True)
class Pulse:
    """Waits for answers, however long they take, for as long as the server is there.

    The SDK goes on asking a dead server for ever, and no time limit fits both a queue of a busy service and a server that died. So while
    something is waited for, the health page is looked at now and then: `patience_s` seconds without any answer end the wait.
    """

    address: str
    key: str | None = field(repr=False)
    patience_s: float
    tell: Callable[[str, str | None], int] = probe
    _silent_since: float | None = None
    _looked: float = 0.0
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def wait[T](self, answer: Awaitable[T], doing: str) -> T:
        """The answer. ProviderError if the server is gone or the request failed; ConfigError if the key is refused."""
        task = asyncio.ensure_future(answer)
        try:
            while not (await asyncio.wait({task}, timeout=self._interval))[0]:
                await self._look(doing)
            with translated(doing):
                return task.result()
        finally:
            task.cancel()

    @property
    def _interval(self) -> float:
        return min(15.0, self.patience_s / 4)

    async def _look(self, doing: str) -> None:
        async with self._lock:
            if time.monotonic() - self._looked >= self._interval:
                self._looked = time.monotonic()
                try:
                    await asyncio.to_thread(self.tell, self.address, self.key)
                    self._silent_since = None
                except (OSError, ValueError) as error:
                    self._silent_since = self._silent_since or self._looked
                    logger.warning("no answer from %s: %s", self.address, error)
            silent = 0.0 if self._silent_since is None else time.monotonic() - self._silent_since
        if silent >= self.patience_s:
            raise ProviderError(
                f"{doing}: {self.address} has not answered for {silent:.0f} s. Start the server again, with its database and checkpoints, "
                "then `auditrl resume`"
            )
