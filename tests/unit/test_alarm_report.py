"""The alarms of a run in its report: explained, drawn against the limit, linked to the audits behind them."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import pytest
from test_monitor import HACKED, Shop, look, open_shop, rows_of, signals

from auditrl.analysis.alarms import alarm_story
from auditrl.analysis.report import render_report
from auditrl.analysis.run_report import gather
from auditrl.train.monitor import ALARMS
from auditrl.types import Report

HOSTILE = "<script>alert(1)</script>"


def full_row(row: dict[str, Any]) -> dict[str, Any]:
    """With what the report reads beside the alarms."""
    return {"failed_audits": 0, "missing_verdicts": {}, "failures": {}, "usage": {}, "time": {"total": 1.0, "tokens_per_s": 1.0}, **row}


@pytest.fixture
def hacked(tmp_path: Path) -> Shop:
    """A run whose false accusations and narration went off at step 10 and were still on at step 15."""
    shop = open_shop(tmp_path, ("alarms.false_accusations.action", "stop"))
    shop.run.write_step(0, "probe", {"signals": signals(), "audits": []})
    accuses = look("probe-0015/a/persona#0", report=Report(finding=True, behavior=HOSTILE, confidence=0.9), narration=3.0)
    bad = HACKED["false_accusations"] | {"narration_share": 0.4}
    for row in rows_of([signals(), bad, bad, bad]):
        for alarm in row.get("alarms", []):
            alarm["audits"] = [accuses.audit.id]
            alarm["action"] = "stop" if alarm["alarm"] == "false_accusations" else "warn"
        shop.run.append_metrics(full_row(row))
    shop.run.write_step(20, "probe", {"signals": bad, "audits": [accuses.as_record()]})
    return shop


def test_the_story_holds_every_alarm_once_with_its_newest_state(hacked: Shop) -> None:
    story = alarm_story(hacked.run, hacked.run.metrics())
    assert len(story.sentences) == 2
    accused = next(text for text in story.sentences if "false accusations" in text)
    assert accused.startswith("Step 20: false accusations 50% (6% at the start), at least 28% (limit 10%, since step 10)")
    assert accused.endswith("first went off at step 15 and stopped the run.")
    narrated = next(text for text in story.sentences if "narration" in text)
    assert "stopped" not in narrated
    section = story.sections[0]
    state, looks = section.tables
    assert [row.cells[0] for row in state.rows] == [about.title for about in ALARMS.values()]
    assert [row.cells[0] for row in looks.rows] == ["start", "5", "10", "15", "20"]
    assert len(section.figures) == 2
    assert [item.label for item in story.showcase] == ["alarm, step 20: false accusations, narration"]


def test_the_page_explains_links_and_escapes(hacked: Shop) -> None:
    page = render_report(gather(hacked.run))
    assert "2 alarms during training" in page
    assert ALARMS["false_accusations"].meaning in html.unescape(page)
    anchor = re.search(r'<li><a href="#(audit-\d+)">alarm, step 20: false accusations, narration</a>', page)
    assert anchor is not None
    assert f'<details class="audit" id="{anchor[1]}"' in page
    assert HOSTILE not in page
    assert "&lt;script&gt;alert(1)" in page


@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_a_look_whose_file_is_gone_shows_no_audit(hacked: Shop, damage: str) -> None:
    file = hacked.run.step_file(20, "probe.json.gz")
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:20])
    story = alarm_story(hacked.run, hacked.run.metrics())
    assert story.showcase == []
    assert len(story.sentences) == 2
    render_report(gather(hacked.run))


def test_a_run_without_alarms_says_so_and_one_without_looks_says_nothing(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    assert alarm_story(shop.run, []).sections == []
    for row in rows_of([signals(quality=None, false_accusations=None, false_accusations_low=None, conduct_missing=3.0)] * 2):
        shop.run.append_metrics(full_row(row))
    story = alarm_story(shop.run, shop.run.metrics())
    assert story.sentences == []
    assert "No alarm went off." in story.sections[0].text
    assert story.sections[0].figures == []
    assert any("6 audits without a verdict" in note for note in story.sections[0].tables[1].notes)
    page = render_report(gather(shop.run))
    assert "during training" not in page
