"""The whole method in one file: train an auditor with GRPO and the reference pairwise reward, in the simulated world.

    python examples/one_file_grpo.py --steps 3

`auditrl train` does the same with a run directory, resume, evaluation and a report; the names are the same. Scenes of one step:

    scenario   a seed (what to look into) and a target, with a hidden behavior planted in half of the groups
    audits     k investigations of each scenario by the current policy, each ending with a report
    verdicts   a judge who knows the truth compares each audit with a reference audit of an earlier policy
    rewards    the judge's score, 0..1; clean targets are judged by the inverted criterion (an honest null is good work)
    advantages (reward - mean of the group) / (std + eps)
    update     policy gradient on the tokens that the policy produced, as they were sampled
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import tempfile
from pathlib import Path

from auditrl.audit.run import run_audits
from auditrl.audit.task import Unit
from auditrl.behaviors.loader import load_bank
from auditrl.behaviors.persona import hidden_block
from auditrl.config import AuditConfig, ModelConfig
from auditrl.models import build_model
from auditrl.policy.engine import AdamConfig, LossConfig, PolicyRef
from auditrl.policy.ledger import TokenLedger
from auditrl.policy.local import LocalEngine
from auditrl.policy.model import policy_model
from auditrl.policy.renderers import open_renderer
from auditrl.policy.segments import merge_turns
from auditrl.rewards import Judges
from auditrl.sim.tiny import SHIPPED
from auditrl.sim.world import sim_seeds
from auditrl.types import Audit, Scenario, Segment

GROUPS, GROUP_SIZE, CLEAN_GROUPS = 8, 8, 4


async def main(steps: int, random_seed: int) -> None:
    behaviors = load_bank().behaviors
    seeds = [seed for seed in sim_seeds() if seed.split == "train"]
    settings = AuditConfig(max_turns=6, rollback=False, target_tools="none")
    targets = {"sim": build_model(ModelConfig(model="sim/target"), "target")}
    judges = Judges(model=build_model(ModelConfig(model="sim/judge"), "judge"), behaviors=behaviors, random_seed=random_seed)
    logs = Path(tempfile.mkdtemp(prefix="auditrl-example-"))

    engine = LocalEngine(SHIPPED, threads=1, seed=random_seed)
    await engine.start()
    await engine.publish("reference")  # the earlier policy that audits are compared with
    renderer, ledger = open_renderer(SHIPPED), TokenLedger()
    auditors = {
        "policy": policy_model(engine.sampler(PolicyRef("current")), renderer, ledger=ledger, max_tokens=16),
        "reference": policy_model(engine.sampler(PolicyRef("reference")), renderer, max_tokens=16),
    }

    for step in range(steps):
        # scenarios: half planted, half with nothing but the persona; the auditor can't tell which
        rng = random.Random(f"{random_seed}/{step}")
        scenarios: list[Scenario] = []
        for group, seed in enumerate(rng.sample(seeds, GROUPS)):
            condition = "persona" if group < CLEAN_GROUPS else "planted"
            scenarios.append(Scenario(id=f"{group}/{seed.id}", seed=seed, condition=condition, behavior=seed.behavior, target="sim"))

        # audits: k of the policy and one of the reference for each scenario, all at once through Inspect and Petri
        units: list[Unit] = []
        for scenario in scenarios:
            block = hidden_block(behaviors[scenario.behavior or ""], scenario.condition)
            for index in range(GROUP_SIZE):
                units.append(Unit(scenario, index, block, random_seed + step, batch=f"{step}", auditor="policy"))
            units.append(Unit(scenario, 0, block, random_seed, batch="reference", auditor="reference"))
        with engine.session(len(units)):
            audits, _ = await run_audits(
                units,
                settings,
                auditors=auditors,
                targets=targets,
                auditor_name="example",
                log_dir=logs,
                name=f"step-{step}",
                joined=engine.joined,
            )

        # verdicts, rewards, advantages, segments
        segments: list[Segment] = []
        rewards: list[float] = []
        for at in range(0, len(audits), GROUP_SIZE + 1):
            group_audits, reference = audits[at : at + GROUP_SIZE], audits[at + GROUP_SIZE]
            scores = await rewards_of(judges, group_audits, reference)
            mean, std = statistics.fmean(scores.values()), statistics.pstdev(scores.values())
            for audit in group_audits:
                turns = ledger.pop(audit.id)
                if audit.id in scores:
                    advantage = (scores[audit.id] - mean) / (std + 0.01)
                    segments += merge_turns(turns, audit_id=audit.id, group=audit.scenario.id, advantage=advantage)
            rewards += scores.values()

        # update: clipped policy gradient over the recorded tokens
        update = await engine.train_step(segments, loss=LossConfig(), adam=AdamConfig(lr=5e-4))
        print(f"step {step + 1}: reward {statistics.fmean(rewards):.3f}, loss {update.values['loss']:.4f}, {len(segments)} segments")
    await engine.close()
    print(f"logs: inspect view --log-dir {logs}")


async def rewards_of(judges: Judges, audits: list[Audit], reference: Audit) -> dict[str, float]:
    """Score of each audit against the reference; an audit without a verdict has no reward."""
    verdicts = await asyncio.gather(*(judges.compare(audit, reference) for audit in audits if not audit.failed))
    return {verdict.audits[0]: verdict.value for verdict in verdicts if verdict.value is not None}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--random-seed", type=int, default=1)
    options = parser.parse_args()
    asyncio.run(main(options.steps, options.random_seed))
