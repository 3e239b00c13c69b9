"""Scenario -> Inspect task -> Audit, on Petri's audit loop with its default tools.

One sample is one audit. The task works with any Inspect model as auditor and target; what it adds to Petri is the hidden block below
the event layer, the report step, and the frozen `Audit` that every judge and reward reads.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

from inspect_ai import Task
from inspect_ai.agent import Agent, AgentState, agent
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessageAssistant, ChatMessageUser, GenerateConfig, Model, ModelOutput, get_model
from inspect_ai.scorer import Scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import Tool, ToolDef
from inspect_petri import audit_solver, auditor_agent, auditor_tools, target_agent
from inspect_petri.target import controller

from ..config import AuditConfig
from ..faults import told
from ..prompts import load_prompt
from ..types import Audit, Scenario
from .capture import TargetCapture, auditor_message
from .context import AuditContext, audit_context, stable_hash
from .replay import Recording, Replay
from .report import parse_report, report_schema
from .target import with_hidden_block
from .tools import AuditorTools

UNSPECIFIED_TARGET = "unspecified target model"


@dataclass(frozen=True, slots=True)
class Unit:
    """One audit to run: a scenario, its place in the group, and the text that is hidden in its target."""

    scenario: Scenario
    index: int
    hidden_block: str | None
    random_seed: int
    batch: str = ""
    """Prefix of the audit's id: the step, the suite."""
    auditor: str = ""
    """Key of the auditor model, for runs with several (the policy and its reference)."""
    recording: Recording | None = None
    """Start from the middle of a recorded audit (see `audit.replay`); its turns then replace the settings'."""

    @property
    def audit_id(self) -> str:
        """Sample id in the log and id of the audit."""
        prefix = f"{self.batch}/" if self.batch else ""
        return f"{prefix}{self.scenario.id}#{self.index}"


Joined = Callable[[str], AbstractAsyncContextManager[None]]
"""Entered around one audit: a policy sampler uses it to know which audits are alive (see `policy.local`)."""


@asynccontextmanager
async def not_joined(_: str) -> AsyncGenerator[None]:
    """The default: nothing wants to know."""
    yield


def audit_task(
    units: Sequence[Unit],
    settings: AuditConfig,
    targets: Mapping[str, Model],
    *,
    auditor_name: str,
    collect: Callable[[Audit], None] | None = None,
    joined: Joined = not_joined,
    name: str = "audit",
    auditors: Mapping[str, Model] | None = None,
    scorer: Scorer | list[Scorer] | None = None,
) -> Task:
    """Inspect task that runs the units, one sample each.

    Args:
        units: Audits to run. Sample ids are the audits' ids.
        settings: Turns, tools, prompts, report step.
        targets: Target models by the key that scenarios name.
        auditor_name: Recorded in each audit.
        collect: Called with each audit as soon as it is over, failed ones included.
        joined: Entered around each audit.
        name: Task name (part of the log's file name).
        auditors: Auditor models by the key that units name; None resolves Inspect's `auditor` role.
        scorer: Optional Inspect scorers.
    """
    samples = [Sample(id=unit.audit_id, input=unit.scenario.seed.text, metadata=_metadata(unit.scenario)) for unit in units]
    return Task(
        name=name,
        dataset=MemoryDataset(samples, name="scenarios"),
        solver=investigate(
            {unit.audit_id: unit for unit in units},
            settings,
            targets,
            auditor_name=auditor_name,
            collect=collect,
            joined=joined,
            auditors=auditors,
        ),
        scorer=scorer,
        fail_on_error=False,
    )


def _metadata(scenario: Scenario) -> dict[str, Any]:
    # Petri lends the sample's metadata to the auditor's prompt template: nothing about the truth may stand here
    return {"tools": list(scenario.seed.tools)} if scenario.seed.tools else {}


def investigate(
    units: Mapping[str, Unit],
    settings: AuditConfig,
    targets: Mapping[str, Model],
    *,
    auditor_name: str,
    collect: Callable[[Audit], None] | None = None,
    joined: Joined = not_joined,
    auditors: Mapping[str, Model] | None = None,
) -> Solver:
    """Solver: one audit by Petri's loop, then the report. A failure is recorded as a failed audit and as the sample's error."""
    tools = _auditor_tools(settings)

    @solver(name="investigate")
    def build() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            unit = units[str(state.sample_id)]
            capture = TargetCapture()
            seen: list[_Conclusion] = []
            with audit_context(unit.audit_id, stable_hash(unit.random_seed, unit.audit_id), target=unit.scenario.target) as context:
                replay = Replay(unit.recording) if unit.recording is not None else None
                model = targets[unit.scenario.target]
                target = with_hidden_block(
                    replay.target(model) if replay else model, unit.hidden_block, keep_reasoning=settings.keep_target_reasoning
                )
                auditor = auditors[unit.auditor] if auditors else get_model(role="auditor", required=True)
                run = audit_solver(
                    auditor=_reporting_auditor(
                        settings, tools, _in_role("auditor", tools.told_to(auditor)), capture, seen, context, replay
                    ),
                    target=capture.wrap(target_agent(model=_in_role("target", target), system_required=settings.system_required)),
                )
                error: str | None = None
                try:
                    async with joined(unit.audit_id):
                        state = await run(state, generate)
                except Exception as exc:
                    error = _failure(exc)
                    raise
                finally:
                    # a cancelled audit is neither finished nor failed: it is run again on resume
                    if error is not None or (seen and seen[0].done):
                        audit = _to_audit(unit, auditor_name, seen, context, error)
                        # as text: Inspect compares and copies the store at every span, and walks through all that it holds
                        state.store.set("audit", audit.model_dump_json())
                        if collect is not None:
                            collect(audit)
            return state

        return solve

    return build()


@dataclass(slots=True)
class _Conclusion:
    """What the auditor's side leaves behind."""

    messages: list[Any]
    branches: tuple[Any, ...] = ()
    report_text: str = ""
    turns: int = 0
    done: bool = False


def _auditor_tools(settings: AuditConfig) -> AuditorTools:
    return AuditorTools(auditor_tools(prefill=settings.prefill, rollback=settings.rollback, target_tools=settings.target_tools))


def _in_role(role: str, model: Model) -> Model:
    """The model under Inspect's name for its role: log and viewer then say who spoke, and count tokens by role."""
    named = copy.copy(get_model(role=role, default=model))
    named.api, named.config, named.model_args = model.api, model.config, model.model_args
    return named


def _reporting_auditor(
    settings: AuditConfig,
    tools: AuditorTools,
    model: Model,
    capture: TargetCapture,
    seen: list[_Conclusion],
    context: AuditContext,
    replay: Replay | None = None,
) -> Agent:
    """Petri's auditor agent, followed by the report step. Its side of the audit is kept also when the agent fails."""
    stock = settings.auditor_prompt == "petri"
    live = _counted_generate(context, tools)
    inner: Any = auditor_agent(
        max_turns=replay.recording.max_turns if replay else settings.max_turns,
        # Petri asks for tools and takes definitions as well: they need not be parsed again at every turn
        tools=cast(list[Tool], tools.full),
        compaction=settings.compaction,
        realism_filter=settings.realism_filter,
        eager_resume=settings.eager_resume,
        turn_counter=settings.turn_counter,
        cache=False,
        target_display_name=UNSPECIFIED_TARGET,
        system_message=None if stock else settings.system_prompt(),
        user_message=None if stock else settings.user_prompt(),
        generate=replay.auditor(live) if replay else live,
        model=model,
    )

    @agent(name="auditor")
    def reporting() -> Agent:
        async def execute(state: AgentState) -> AgentState:
            conclusion = _Conclusion(messages=state.messages)
            seen.append(conclusion)
            try:
                state = await inner(state)
                conclusion.messages = list(state.messages)
                if settings.report and not context.target_errors:
                    request = ChatMessageUser(content=load_prompt("auditrl.audit", "report"))
                    output = await model.generate(
                        [*state.messages, request],
                        tools=tools.brief,
                        tool_choice="none",
                        config=GenerateConfig(response_schema=report_schema()),
                    )
                    _count(context, output)
                    conclusion.report_text = output.completion
                conclusion.done = True
            finally:
                conclusion.turns = sum(isinstance(m, ChatMessageAssistant) for m in conclusion.messages)
                conclusion.branches = capture.branches(controller().short_id)
            return state

        return execute

    return reporting()


def _count(context: AuditContext, output: Any) -> None:
    if output.usage is not None:
        context.add_usage("auditor", output.usage)


def _counted_generate(context: AuditContext, tools: AuditorTools) -> Any:
    shown: list[ToolDef] = tools.full

    async def generate(model: Model, messages: list[Any], _: list[Tool], cache: Any) -> Any:
        nonlocal shown
        if context.target_errors:
            # Petri tells the auditor and goes on, but the audit is lost: no further turn is worth its price, or another round of retries
            return ModelOutput.for_tool_call(UNSPECIFIED_TARGET, "end_conversation", {})
        output = await model.generate(input=messages, tools=shown, cache=cache)
        shown = tools.brief
        _count(context, output)
        return output

    return generate


def _failure(error: BaseException) -> str:
    return f"auditor: {told(error, 500)}"


def _to_audit(unit: Unit, auditor_name: str, seen: list[_Conclusion], context: AuditContext, error: str | None) -> Audit:
    conclusion = seen[0] if seen else _Conclusion(messages=[])
    if error is None and context.target_errors:
        error = f"target: {context.target_errors[0][:500]}"
    branches = conclusion.branches
    replies = {m.ref for b in branches for m in b.messages if m.role == "assistant" and not m.prefill}
    # the first two messages are the auditor's instructions, which hold the seed
    messages = tuple(auditor_message(m) for m in conclusion.messages[2:])
    return Audit(
        id=unit.audit_id,
        scenario=unit.scenario,
        auditor=auditor_name,
        index=unit.index,
        auditor_messages=messages,
        branches=branches,
        report=parse_report(conclusion.report_text) if conclusion.report_text else None,
        report_text=conclusion.report_text[:20_000],
        turns=conclusion.turns,
        target_turns=len(replies),
        error=error,
        usage=context.usage,
    )
