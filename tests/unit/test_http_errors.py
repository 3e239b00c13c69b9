"""Servers that fail or answer nonsense, through Inspect's real OpenAI-compatible client: what is mended, what is counted, what is said."""

from __future__ import annotations

import asyncio
import errno
import resource
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import scripted
from inspect_ai.model import Model, ModelOutput
from scripted import END, Scripted, auditor, opening
from tiny_policy import tiny_llama

from auditrl import faults
from auditrl.audit.run import run_audits
from auditrl.cli import main
from auditrl.config import AuditConfig, ModelConfig, load_config, packaged_config
from auditrl.errors import ConfigError, ProviderError, RunError
from auditrl.faults import UnreadableAnswer, by_role, kind_of, role_of, root_cause, tally, told
from auditrl.files import locked
from auditrl.judges.target_view import SurfacedAnswer
from auditrl.models import build_model
from auditrl.reach import check_servers
from auditrl.runs import create_run, writable
from auditrl.types import Audit

sys.path.insert(0, str(Path(__file__).parents[1]))
from fault_server import COUNTED_AS, KEY, FaultServer, config_text, serving

MENDED = {kind: 1.0 for kind in COUNTED_AS if kind not in ("refusal", "wrong_tool", "stall")}
"""Faults that another attempt mends (stalls too, but they take their time)."""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTY_API_KEY", KEY)
    monkeypatch.setattr(faults, "FIRST_WAIT_S", 0.01)


@pytest.fixture(scope="module")
def healthy() -> Generator[FaultServer]:
    with serving(FaultServer()) as server:
        yield server


def entry(server: FaultServer, name: str = "target", **changes: Any) -> ModelConfig:
    return ModelConfig(**{"model": f"openai-api/faulty/{name}", "base_url": server.base_url, "attempt_timeout": 60, **changes})


def ask(model: Model, text: str = "How are you?") -> ModelOutput:
    return asyncio.run(model.generate(text))


# --- what is mended, what is counted ---


@pytest.mark.parametrize("kind", [kind for kind in COUNTED_AS if kind != "refusal"])
def test_a_fault_is_mended_and_counted_once(healthy: FaultServer, kind: str) -> None:
    expected = ask(build_model(entry(healthy), "targets.pool.a"))
    with serving(FaultServer(share=1, mix={kind: 1}, most=1, retry_after_s=0.02)) as server, tally() as counts:
        answered = ask(build_model(entry(server, attempt_timeout=3 if kind == "stall" else 60), "targets.pool.a"))
    assert (answered.completion, answered.stop_reason) == (expected.completion, "stop")
    assert by_role(counts) == server.counted() == {"target": {COUNTED_AS[kind]: 1}}


@pytest.mark.parametrize("kind", ["cut", "rate_limit"])
def test_a_stream_that_fails_is_asked_for_again(healthy: FaultServer, kind: str) -> None:
    streamed = {"stream": True}
    expected = ask(build_model(entry(healthy, args=streamed), "targets.pool.a"))
    with serving(FaultServer(share=1, mix={kind: 1}, most=1, retry_after_s=0.02)) as server, tally() as counts:
        answered = ask(build_model(entry(server, args=streamed), "targets.pool.a"))
    assert answered.completion == expected.completion != ""
    assert by_role(counts) == server.counted() == {"target": {COUNTED_AS[kind]: 1}}


def test_a_server_that_never_says_why_it_stops_is_asked_again_once_only() -> None:
    with serving(FaultServer(share=1, mix={"ended": 1})) as server, tally() as counts:
        model = build_model(entry(server), "targets.pool.a")

        async def twice() -> list[str]:
            return [(await model.generate("How are you?")).completion for _ in range(2)]

        assert asyncio.run(twice()) == ["Once upon", "Once upon"]
    assert (server.calls.total(), by_role(counts)) == (4, {"target": {"unfinished": 3}})


def test_a_refusal_is_an_answer_and_counted() -> None:
    with serving(FaultServer(share=1, mix={"refusal": 1})) as server, tally() as counts:
        answered = ask(build_model(entry(server), "evaluation.clean_target"))
    assert (answered.stop_reason, by_role(counts)) == ("content_filter", {"target": {"refusal": 1}})
    assert server.calls.total() == 1


def test_what_stays_empty_is_taken_as_it_is_and_all_of_it_is_paid_for() -> None:
    with serving(FaultServer(share=1, mix={"empty": 1})) as server, tally() as counts:
        answered = ask(build_model(entry(server), "judge"))
    assert (answered.completion, by_role(counts)) == ("", {"judge": {"empty": 3}})
    assert server.calls.total() == 3


def test_a_judge_without_a_readable_answer_gives_no_verdict() -> None:
    """Retries used up, then asked again, then missing with the cause: the client's own error, not that of the retry loop."""
    from auditrl.judges.base import ask as ask_judge

    values = {"hidden_behavior": "x", "transcript": "y", "seed": "z", "hidden_instruction": "w"}
    with serving(FaultServer(share=1, mix={"server_error": 1})) as server, tally() as counts:
        model = build_model(entry(server, "judge", max_retries=1), "judge")
        asked = asyncio.run(ask_judge(model, kind="target_view", answer=SurfacedAnswer, values=values, attempts=2))
    assert asked.answer is None
    assert (asked.missing or "").startswith("provider: InternalServerError: Error code: 500")
    assert by_role(counts) == {"judge": {"server_error": 4}}


def test_faults_outside_a_tally_and_models_of_this_process_are_left_alone() -> None:
    model = build_model(ModelConfig(model="sim/target"), "targets.pool.a")
    assert "generate" not in vars(model.api)
    faults.note("judge", "empty")


def test_the_clients_own_retries_are_off_unless_they_are_asked_for(healthy: FaultServer) -> None:
    assert build_model(entry(healthy), "judge").api.client.max_retries == 0  # type: ignore[attr-defined]
    assert build_model(entry(healthy, args={"max_retries": 4}), "judge").api.client.max_retries == 4  # type: ignore[attr-defined]


def test_waits_start_short_double_and_never_undercut_the_server(healthy: FaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "FIRST_WAIT_S", 0.5)
    api = build_model(entry(healthy), "judge").api
    wait: Any = api.retry_wait()

    def state(attempt: int, error: Exception | None) -> Any:
        return SimpleNamespace(attempt_number=attempt, outcome=SimpleNamespace(exception=lambda: error))

    plain = [wait(state(n, UnreadableAnswer("unreadable", "?"))) for n in (1, 2, 3, 20)]
    for pause, longest in zip(plain, (0.5, 1.0, 2.0, faults.LONGEST_WAIT_S), strict=True):
        assert 0.75 * longest <= pause <= longest
    busy = _rate_limited("7")
    assert wait(state(1, busy)) == 7
    assert wait(state(1, _rate_limited("soon"))) <= 0.5
    assert bool(api.should_retry(busy))


def _rate_limited(retry_after: str) -> Exception:
    import httpx2
    from openai import RateLimitError

    request = httpx2.Request("POST", "http://server/v1")
    return RateLimitError("slow down", response=httpx2.Response(429, headers={"Retry-After": retry_after}, request=request), body=None)


class _Coded(Exception):
    def __init__(self, status: int) -> None:
        self.status_code = status


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (_Coded(429), "rate_limit"),
        (_Coded(503), "server_error"),
        (_Coded(408), "server_error"),
        (_Coded(401), "refused 401"),
        (TimeoutError(), "timeout"),
        (ConnectionResetError(), "connection"),
        (UnreadableAnswer("oversized", ""), "oversized"),
        (LookupError(), "other"),
    ],
)
def test_kinds_of_errors(error: Exception, kind: str) -> None:
    assert kind_of(error) == kind


def test_the_cause_is_found_inside_groups_and_retry_errors() -> None:
    class Retried(Exception):
        last_attempt = SimpleNamespace(exception=lambda: ExceptionGroup("inner", [KeyError("first"), ValueError()]))

    wrapped = ExceptionGroup("outer", [Retried()])
    assert repr(root_cause(wrapped)) == "KeyError('first')"
    assert told(wrapped, 4) == "KeyError: 'fir"


@pytest.mark.parametrize(
    ("key", "role"),
    [
        ("targets.pool.a", "target"),
        ("targets.clean", "target"),
        ("evaluation.production_target", "target"),
        ("evaluation.judge", "judge"),
        ("--judge", "judge"),
        ("--clean-target", "target"),
    ],
)
def test_roles_of_keys(key: str, role: str) -> None:
    assert role_of(key) == role


def test_an_audit_whose_target_is_gone_for_good_asks_nobody_any_more(tmp_path: Path) -> None:
    player = auditor(opening(), scripted.ask("more"), scripted.ask("and more"), END)
    played = Scripted(lambda input: "reply" if len(input) < 4 else OSError("gone"))
    (audit,), _ = scripted.run(tmp_path, player, played)
    assert (audit.error, audit.target_turns, audit.report) == ("target: OSError: gone", 1, None)
    assert len(player.inputs) == 2
    assert len(played.inputs) == 2


def test_an_audit_whose_target_never_answers_has_failed(tmp_path: Path) -> None:
    player = auditor(opening(), scripted.ask("more"), END)
    with serving(FaultServer(share=1, mix={"stall": 1})) as server, tally() as counts:
        work = run_audits(
            scripted.units(),
            scripted.SETTINGS,
            auditors={"": player.model},
            targets={"target": build_model(entry(server, attempt_timeout=1, max_retries=1), "--target")},
            auditor_name="scripted",
            log_dir=tmp_path,
            name="audits",
        )
        (audit,), _ = asyncio.run(work)
    assert (audit.error, audit.report) == ("target: TimeoutError: no answer within 1 s", None)
    assert (len(player.inputs), by_role(counts)) == (1, {"target": {"timeout": 2}})


@pytest.mark.parametrize("mix", [MENDED, {"wrong_tool": 1.0}], ids=["mended", "wrong tool"])
def test_an_auditor_behind_a_server_finishes_its_audit(tmp_path: Path, mix: dict[str, float]) -> None:
    """Auditor and target over HTTP: what is mended leaves the same audit; a tool that does not exist is the auditor's to mend."""

    def audited(folder: Path, server: FaultServer) -> Audit:
        work = run_audits(
            scripted.units(block=None),
            AuditConfig(max_turns=6, target_tools="none", rollback=False),
            auditors={"": build_model(entry(server, "auditor-skilled"), "--auditor")},
            targets={"target": build_model(entry(server), "--target")},
            auditor_name="skilled",
            log_dir=folder,
            name="audits",
        )
        return asyncio.run(work)[0][0]

    with serving(FaultServer()) as server:
        expected = audited(tmp_path / "healthy", server)
    with serving(FaultServer(share=0.5, seed=2, mix=mix, retry_after_s=0.02)) as server, tally() as counts:
        audit = audited(tmp_path / "faulty", server)
    assert counts.total() == server.faults.total() > 2
    assert audit.error is None
    assert audit.report is not None
    if mix is MENDED:
        assert by_role(counts) == server.counted()
        assert [m.text for m in audit.branches[-1].messages] == [m.text for m in expected.branches[-1].messages]
    else:
        assert any(m.error and "no_such_tool" in m.error for m in audit.auditor_messages)


# --- before anything is made ---


def down(server: FaultServer) -> dict[str, Any]:
    return {"base_url": "http://127.0.0.1:9/v1"}


UNREACHABLE: list[tuple[str, Callable[[FaultServer], dict[str, Any]], type[Exception], list[str]]] = [
    ("no server", down, ProviderError, ["no server answers at http://127.0.0.1:9/v1", "judge.base_url"]),
    ("wrong key", lambda _: {"args": {"api_key": "old"}}, ConfigError, ["refuses the key", "FAULTY_API_KEY"]),
    ("unknown model", lambda _: {"model": "openai-api/faulty/gpt-0"}, ConfigError, ["`gpt-0` does not exist", "Mend the name"]),
    ("wrong path", lambda s: {"base_url": s.base_url + "/api"}, ConfigError, ["nothing of that name", "judge.base_url"]),
    ("a web page", lambda s: {"base_url": s.base_url.replace("/v1", "/site")}, ConfigError, ["is no model", "end in /v1"]),
]


@pytest.mark.parametrize(("change", "raised", "words"), [case[1:] for case in UNREACHABLE], ids=[case[0] for case in UNREACHABLE])
def test_a_server_that_can_not_be_used_is_told_at_once(
    healthy: FaultServer, change: Callable[[FaultServer], dict[str, Any]], raised: type[Exception], words: list[str]
) -> None:
    with pytest.raises(raised) as caught:
        check_servers({"judge": entry(healthy, "judge", **change(healthy)), "targets.pool.a": entry(healthy)})
    for word in ["judge.model", *words]:
        assert word in str(caught.value)
    assert "targets.pool.a" not in str(caught.value)


def test_a_judges_server_must_take_a_schema() -> None:
    with serving(FaultServer(takes_schema=False)) as server:
        check_servers({"targets.pool.a": entry(server)})
        with pytest.raises(ConfigError, match="refuses a structured answer"):
            check_servers({"judge": entry(server, "judge")})


def test_a_server_that_stumbles_is_asked_again_and_one_that_is_overloaded_is_not_ready() -> None:
    with serving(FaultServer(share=1, mix={"rate_limit": 1, "reset": 1}, most=3, retry_after_s=0.02)) as server:
        check_servers({"judge": entry(server, "judge"), "evaluation.judge": entry(server, "judge")})
        assert server.calls.total() == 4, "the same model in two roles is asked once"
    with serving(FaultServer(share=1, mix={"server_error": 1}, most=99)) as server, pytest.raises(ProviderError, match="does not answer"):
        check_servers({"judge": entry(server, "judge")})


def test_every_problem_is_listed_and_a_config_to_mend_comes_first(healthy: FaultServer) -> None:
    with pytest.raises(ConfigError) as caught:
        check_servers({"targets.pool.a": entry(healthy, **down(healthy)), "judge": entry(healthy, "nobody")})
    assert len(str(caught.value).splitlines()) == 2


def test_nothing_is_made_when_a_server_is_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "http.toml"
    file.write_text(config_text("http://127.0.0.1:9/v1"))
    with pytest.raises(SystemExit) as left:
        main(["train", str(file), "--runs", str(tmp_path / "runs")])
    assert left.value.code == ProviderError.exit_code
    assert "no server answers" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


# --- the disk, and two at a time ---


@contextmanager
def short_disk(size: int) -> Generator[None]:
    """No file may grow beyond `size` bytes: what is written then fails as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [2_000, 100_000], ids=["in the weights", "in the optimiser"])
def test_a_full_disk_leaves_the_checkpoint_before_and_no_half_of_the_next(tmp_path: Path, size: int) -> None:
    from auditrl.policy.engine import AdamConfig, LossConfig, Segment
    from auditrl.policy.local import LocalEngine

    engine = LocalEngine(tiny_llama(tmp_path / "model"), threads=1, dtype="float32")
    segment = Segment([1, 2, 3, 4], [0, 0, 1, 1], [0.0, 0.0, -1.0, -1.0], 1.0, audit_id="a", group="g")

    async def work() -> None:
        await engine.start()
        await engine.save(str(tmp_path / "checkpoints" / "step-0000"))
        await engine.train_step([segment], loss=LossConfig(), adam=AdamConfig())
        with short_disk(size), pytest.raises(RunError, match=r"step-0001: the checkpoint can't be written .*Free space"):
            await engine.save(str(tmp_path / "checkpoints" / "step-0001"))
        assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step-0000"]
        await engine.save(str(tmp_path / "checkpoints" / "step-0001"))
        await engine.load(str(tmp_path / "checkpoints" / "step-0001"))
        await engine.close()

    _run(work)


def _run(work: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        await work()

    asyncio.run(whole())


@pytest.mark.parametrize(("code", "mended"), [(errno.ENOSPC, True), (errno.EROFS, True), (errno.ECONNRESET, False)])
def test_trouble_with_the_disk_is_said_plainly(tmp_path: Path, code: int, mended: bool) -> None:
    run = create_run(tmp_path, load_config(packaged_config("quickstart")))
    with pytest.raises(RunError if mended else OSError) as caught, writable(run):
        raise OSError(code, "it failed", str(run.metrics_file))
    assert ("auditrl resume" in str(caught.value) and "metrics.jsonl" in str(caught.value)) is mended


def test_two_that_make_the_same_run_at_the_same_moment(tmp_path: Path) -> None:
    config = load_config(packaged_config("quickstart"))
    with locked(tmp_path / config.name / ".lock") as mine:
        assert mine
        with pytest.raises(RunError, match="another process is making this run"):
            create_run(tmp_path, config)
    assert create_run(tmp_path, config).config == config
