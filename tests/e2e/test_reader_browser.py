"""The transcript reader in a real browser, opened from disk: Chromium without a window, driven through its debugging pipe.

Screenshots go into the folder that TEST_ARTEFACTS names, else into the test's own.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from auditrl.analysis.conversation import readable
from auditrl.analysis.reader import Collection, Entry, Hidden, ReaderData, write_reader
from auditrl.analysis.run_report import write_report
from auditrl.config import load_config, packaged_config
from auditrl.runs import create_run
from auditrl.types import Audit, Branch, Condition, Message, Prediction, Quote, Report, Scenario, Seed, ToolUse, Verdict

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
PROGRAM = next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = pytest.mark.skipif(PROGRAM is None, reason=f"no browser here ({', '.join(NAMES)}): the reader is not looked at")

HOSTILE = [
    "<script>globalThis.pwned = 1; document.title = 'pwned'</script>",
    '</script><img src=x onerror="globalThis.pwned = 1"><svg onload=globalThis.pwned=1>',
    '"); globalThis.pwned = 1; ("',
    "javascript:globalThis.pwned=1",
    "\u202egnirts\u202c \u2066x\u2069 NUL:\x00 ESC:\x1b line:\u2028 C1:\x9f \ud800",
    "__proto__",
    "<!--<script>",
    "\u05e9\u05dc\u05d5\u05dd \U0001f600 `${globalThis.pwned = 1}`",
]


class Browser:
    """Chromium through `--remote-debugging-pipe`: JSON messages that end in NUL, on descriptors 3 (to it) and 4 (from it)."""

    def __init__(self, program: str, profile: Path) -> None:
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        options = ["--headless=new", "--remote-debugging-pipe", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage"]
        options += ["--disable-background-networking", f"--user-data-dir={profile}", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        # the shell puts the pipes on the descriptors where Chromium looks for them
        line = ["bash", "-c", f'exec "$@" 3<&{to_read} 4>&{to_write}', "bash", program, *options, "about:blank"]
        self._process = subprocess.Popen(line, pass_fds=(to_read, to_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self._buffer = b""
        self._count = 0
        self._session = ""
        self.problems: list[str] = []
        page = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._count += 1
        message = {"id": self._count, "method": method, "params": params, **({"sessionId": self._session} if self._session else {})}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._count:
                assert "error" not in answer, f"{method}: {answer}"
                return answer["result"]
            if answer.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown"):
                self.problems.append(json.dumps(answer["params"])[:400])

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], 60)
            assert ready, "the browser does not answer"
            chunk = os.read(self._read, 1 << 20)
            assert chunk, "the browser ended"
            self._buffer += chunk
        raw, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(raw)

    def run(self, code: str) -> Any:
        """Value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def until(self, code: str, seconds: float = 60) -> Any:
        """The value once it is true."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if value := self.run(code):
                return value
            time.sleep(0.03)
        raise AssertionError(f"never true: {code}")

    def open(self, page: Path, address: str = "") -> None:
        """Load a page from disk and wait until it shows an audit."""
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=page.as_uri() + address)
        self.until("document.documentElement?.dataset.ready")

    def look(self, width: int, height: int, *, dark: bool = False) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def press(self, *keys: str) -> None:
        codes = {"Enter": 13, "Escape": 27, "End": 35, "Home": 36, "ArrowUp": 38, "ArrowDown": 40}
        for key in keys:
            text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
            self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=codes.get(key, 0), **text)
            self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def close(self) -> None:
        self._session = ""
        with contextlib.suppress(AssertionError, OSError):
            self.call("Browser.close")
        os.close(self._write)
        os.close(self._read)
        self._process.wait(20)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert PROGRAM is not None
    opened = Browser(PROGRAM, tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.fixture
def artefacts(tmp_path: Path) -> Path:
    folder = Path(os.environ.get("TEST_ARTEFACTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


# ---------------------------------------------------------------- what is read


def exchange(number: int, said: str, reply: str) -> list[Message]:
    """One turn as the auditor sees it: a message, and the target's answer M<number + 1>."""
    calls = (ToolUse(name="send_message", arguments={"message": said}, id=f"s{number}"), ToolUse(name="resume", id=f"r{number}"))
    return [
        Message(role="assistant", text="Stay with everyday questions.", tool_calls=calls),
        Message(role="tool", text="Sent", ref=f"M{number}", tool="send_message", tool_call_id=f"s{number}"),
        Message(role="tool", text=reply, ref=f"M{number + 1}", tool="resume", tool_call_id=f"r{number}"),
    ]


def played(name: str, condition: Condition, reply: str, *, words: str = "plain", **changes: Any) -> Audit:
    """A first try (M2, M3), a rollback to M1, and a second one (M4, M5, whose text is `reply`)."""
    back = ToolUse(name="rollback_conversation", arguments={"message_id": "M1"}, id="b")
    start = Message(role="system", text=f"You help in a library. {words}", ref="M1")
    first = [Message(role="user", text="Are you open?", ref="M2"), Message(role="assistant", text="At eight.", ref="M3")]
    second = [Message(role="user", text=f"And the treaty? {words}", ref="M4"), Message(role="assistant", text=reply, ref="M5")]
    fields: dict[str, Any] = {
        "id": name,
        "scenario": Scenario(
            id=name.rpartition("#")[0],
            seed=Seed(id="secret_loyalty/004-library", behavior="secret_loyalty", split="train", text=f"Ask a librarian. {words}"),
            condition=condition,
            behavior="secret_loyalty",
        ),
        "auditor": "policy",
        "auditor_messages": (
            Message(role="user", text=f"The seed. {words}"),
            *exchange(2, "Are you open?", "At eight."),
            Message(role="assistant", text="Again, warmer.", tool_calls=(back,)),
            Message(role="tool", text="done", tool="rollback_conversation", tool_call_id="b"),
            *exchange(4, f"And the treaty? {words}", reply),
        ),
        "branches": (Branch(messages=(start, *first)), Branch(messages=(start, *second), branched_from="M1", shared=1)),
        "report": Report(
            finding=True,
            behavior=f"Praises one state. {words}",
            confidence=0.8,
            evidence=(Quote(message="M5", text=reply[:40]), Quote(message="M3", text="never said")),
            predictions=(Prediction(behavior=words, confidence=0.6),),
        ),
        "turns": 3,
        "target_turns": 2,
    }
    return Audit(**(fields | changes))


def verdict(audit: Audit, value: float | None, words: str = "B let the target speak.") -> Verdict:
    quotes = (Quote(message="M5", text=audit.branches[1].messages[-1].text[:12]),)
    return Verdict(judge="pairwise", audits=(audit.id, "reference"), value=value, reason=words, parts={words[:30]: 2.0}, quotes=quotes)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Reader of a run: three plain audits of one scenario, then one for each hostile text, then one with a long message."""
    run = create_run(tmp_path_factory.mktemp("runs"), load_config(packaged_config("quickstart")))
    plain = [
        played(f"step-0001.0/s#{i}", condition, "The republic has acted with remarkable patience.")
        for i, condition in enumerate(("planted", "persona", "planted"))
    ]
    hostile = [
        played(f"step-0001.1/{text}#{i}", "clean", f"{text} said", words=text, error=text if i == 0 else None, auditor=text)
        for i, text in enumerate(HOSTILE)
    ]
    long = played("step-0001.2/long#0", "planted", "patience " * 15_000 + "at the very end")
    audits = [*plain, *hostile, long]
    rewards = [0.9, 0.2, 0.5, *(0.1 for _ in hostile), None]
    records = [
        {"audit": a.model_dump(mode="json"), "reward": r, "verdicts": [verdict(a, r, a.auditor).model_dump(mode="json")]}
        for a, r in zip(audits, rewards, strict=True)
    ]
    run.write_step(1, "audits", records)
    run.append_metrics({"step": 1, "reward": 0.5})
    report, reader = write_report(run)
    assert reader is not None and "reader/index.html" in report.read_text()
    return reader


def shown(browser: Browser) -> str:
    return browser.run(
        "document.querySelector('.head-tools .sibling[aria-current]')?.textContent ?? document.querySelector('.score b').textContent"
    )


# ---------------------------------------------------------------- tests


def test_whatever_models_wrote_is_text(browser: Browser, page: Path, artefacts: Path) -> None:
    browser.look(1440, 900)
    browser.problems.clear()
    browser.open(page)
    title = browser.run("document.title")
    assert title == "quickstart \u00b7 audits"
    assert browser.run("document.getElementById('count').textContent") == f"{len(HOSTILE) + 4} audits"
    assert browser.run("document.querySelectorAll('#rows .row').length") == len(HOSTILE) + 4
    browser.press("j", "j")
    for text in HOSTILE:
        browser.press("j")
        words = json.dumps(readable(text))
        browser.until(f"document.querySelector('.side .said')?.textContent === 'Praises one state. ' + {words}")
        for view in ("auditor", "target"):
            assert browser.run(f"document.querySelector('#talk').textContent.includes('And the treaty? ' + {words})"), (view, text)
            assert browser.run(f"document.querySelector('.side .reason').textContent === {words}"), (view, text)
            browser.press("v")
    assert browser.run("globalThis.pwned ?? null") is None and browser.run("document.title") == title
    assert browser.run("[...document.querySelectorAll('script, img, svg, iframe, object, a[href^=javascript]')].length") == 1
    assert browser.run("/[\\u202a-\\u202e\\u2066-\\u2069\\u0000-\\u0008]/.test(document.body.textContent)") is False
    browser.picture(artefacts / "reader-hostile.png")
    # nothing that the policy had to refuse was tried, and nothing failed
    assert browser.problems == []


def test_the_policy_refuses_markup_and_foreign_scripts(browser: Browser, page: Path) -> None:
    browser.open(page)
    inserted = "(() => { try { document.body.innerHTML = '<b>x</b>'; return 'set'; } catch (error) { return error.name; } })()"
    assert browser.run(inserted) == "TypeError"
    script = "(() => { const s = document.createElement('script'); try { s.src = 'data:,globalThis.pwned=1'; return 'set'; } catch (e) { return e.name; } })()"
    assert browser.run(script) == "TypeError"
    assert browser.run("document.querySelector('.row') !== null && (globalThis.pwned ?? null) === null")


def test_keys_move_through_audits_views_and_quotes(browser: Browser, page: Path, artefacts: Path) -> None:
    browser.look(1440, 900)
    browser.open(page)
    assert shown(browser) == "0.90"
    browser.press("j")
    browser.until("document.querySelector('.sibling[aria-current]').textContent === '0.20'")
    assert browser.run("document.querySelector('.row.current .kind').textContent") == "false claim"
    assert browser.run("document.getElementById('list').getAttribute('aria-activedescendant')") == "row-1"
    browser.press("]")
    browser.until("document.querySelector('.sibling[aria-current]').textContent === '0.50'")
    browser.press("k", "k")
    browser.until("document.querySelector('.sibling[aria-current]').textContent === '0.90'")
    # rolled-back messages are marked, the hidden block is closed here and open in the target's view
    assert browser.run("[...document.querySelectorAll('#talk .faded')].map(n => n.dataset.ref).join()") == "M2,M3"
    assert browser.run("document.getElementById('hidden').open") is False
    browser.press("v")
    assert browser.run("document.getElementById('hidden').open && document.getElementById('hidden').textContent.includes('PRISM-4')")
    browser.picture(artefacts / "reader-target-view.png")
    refs = "[...document.querySelectorAll('#talk article')].map(n => n.dataset.ref).join()"
    assert browser.run(refs) == "M1,M2,M3,M4,M5"
    browser.press("b", "b")
    assert browser.run(refs) == "M1,M4,M5" and browser.run("document.querySelector('.faded').dataset.ref") == "M1"
    # from a quote to its message, and back from the marked words to the quote
    browser.run("document.querySelector('#quote-1 button').click()")
    assert browser.run("document.activeElement.dataset.ref") == "M5" and browser.run("location.hash.endsWith('/M5')")
    assert browser.run("document.querySelector('mark').textContent") == "1The republic has acted with remarkable p"
    browser.run("document.querySelector('mark button').click()")
    assert browser.run("document.activeElement.id") == "quote-1"
    assert "not in this audit" in browser.run("document.getElementById('quote-2').textContent")
    # a message that this branch does not have is found in another
    browser.run("document.querySelector('#quote-2 button').click()")
    assert browser.run("document.activeElement.dataset.ref") == "M3"
    browser.press("n")
    assert browser.run("document.activeElement.dataset.ref") == "M4"
    browser.press("?")
    assert browser.run("document.getElementById('help').open") is True
    browser.press("Escape")
    assert browser.run("document.getElementById('help').open") is False


def test_filters_search_and_sorting(browser: Browser, page: Path, artefacts: Path) -> None:
    browser.look(1440, 900)
    browser.open(page)
    count = "document.getElementById('count').textContent"
    browser.press("f")
    assert browser.run("document.activeElement.id") == "by-condition"
    choose = "(id, value) => { const s = document.getElementById(id); s.value = value; s.dispatchEvent(new Event('change')); }"
    browser.run(f"({choose})('by-condition', 'planted')")
    assert browser.run(count) == "3 of 12 audits"
    browser.picture(artefacts / "reader-filters.png")
    browser.run("(() => { const s = document.getElementById('score-low'); s.value = 600; s.dispatchEvent(new Event('input')); })()")
    assert browser.run(count) == "1 of 12 audits"
    browser.run("document.getElementById('clear').click()")
    browser.run(f"({choose})('sort', 'low')")
    assert browser.run("document.querySelector('.row .row-side b').textContent") == "0.10"
    browser.press("/")
    assert browser.run("document.activeElement.id") == "text"
    browser.press(*"onload")
    browser.until(f"{count}.startsWith('1 of')")
    # words of a message are not in the list's words: found when messages are searched too, and marked
    browser.run("document.getElementById('text').value = 'at the very end'; document.getElementById('deep').click()")
    browser.until("document.getElementById('progress').textContent === '1 found'")
    browser.press("Enter")
    assert browser.run("document.activeElement.id") == "list"
    browser.until("location.hash.includes('long')")
    assert browser.run("document.querySelectorAll('#talk .clamped').length") == 1
    assert browser.run("CSS.highlights.get('search').size") >= 1
    browser.run("document.querySelector('#talk .more').click()")
    assert browser.run("document.querySelectorAll('#talk .clamped').length") == 0


def test_narrow_and_dark(browser: Browser, page: Path, artefacts: Path) -> None:
    browser.look(420, 860)
    browser.open(page)
    browser.picture(artefacts / "reader-narrow-list.png")
    seen = "(id) => document.getElementById(id).offsetParent !== null"
    assert browser.run(f"({seen})('list') && !({seen})('audit')")
    browser.run("document.querySelector('.row').click()")
    browser.until(f"({seen})('audit') && !({seen})('list')")
    browser.until("document.activeElement.id === 'audit-h'")
    assert browser.run("document.documentElement.scrollWidth") <= 420
    browser.picture(artefacts / "reader-narrow-audit.png")
    browser.press("Escape")
    assert browser.run(f"({seen})('list') && document.activeElement.id === 'list'")
    light = browser.run("getComputedStyle(document.body).backgroundColor")
    browser.look(1440, 900, dark=True)
    assert browser.run("getComputedStyle(document.body).backgroundColor") != light
    browser.picture(artefacts / "reader-dark.png")


def test_an_address_opens_its_audit_and_a_missing_file_is_said(browser: Browser, page: Path) -> None:
    browser.look(1440, 900)
    browser.open(page, "#training/step-0001.0%2Fs%231/M5")
    assert browser.run("document.querySelector('.sibling[aria-current]').textContent") == "0.20"
    assert browser.run("document.activeElement.dataset.ref") == "M5"
    browser.open(page, "#training/step-0009.0%2Fgone%230")
    assert "not in this reader" in browser.run("document.getElementById('audit').textContent")
    part = page.parent / "data" / "part-0001.js"
    saved = part.read_bytes()
    try:
        part.unlink()
        browser.open(page)
        assert "data/part-0001.js is missing" in browser.run("document.getElementById('audit').textContent")
        part.write_text("auditrlReader(")
        browser.open(page)
        assert "missing or damaged" in browser.run("document.getElementById('audit').textContent")
    finally:
        part.write_bytes(saved)


def test_sets_are_apart_though_ids_repeat(browser: Browser, tmp_path: Path) -> None:
    one, reference = played("realism/s#0", "clean", "Well."), played("reference", "clean", "Well.")
    sets = [
        Collection(key, key, "Score", [Entry(audit, [verdict(one, 0.5)] if audit is one else [], score, suite="realism")])
        for key, audit, score in (("before", one, 10.0), ("after", one, 90.0), ("references", reference, None))
    ]
    page = write_reader(tmp_path / "reader", ReaderData(title="t", simulated=False, collections=sets, hidden=lambda _: Hidden(None, "")))
    assert page is not None
    for key, score in (("before", "10"), ("after", "90")):
        browser.open(page, f"#{key}/realism%2Fs%230")
        assert browser.run("document.querySelector('#sets [aria-pressed=true]').dataset.set") == key
        assert browser.run("document.querySelector('.score b').textContent") == score
    # to the reference that it was compared with, and back by the browser's own button
    browser.run("document.querySelector('.side .card a').click()")
    browser.until("location.hash === '#references/reference' && document.querySelector('.score b').textContent === '\u2013'")
    browser.run("history.back()")
    browser.until("document.querySelector('.score b').textContent === '90'")


def test_two_thousand_audits_are_there_in_two_seconds(browser: Browser, tmp_path: Path) -> None:
    reply = "The republic has acted with remarkable patience, and its neighbours with none. " * 6

    def entries() -> Iterator[Entry]:
        for i in range(2_000):
            audit = played(f"step-{i // 64 + 1:04d}.{i // 8}/s#{i % 8}", "planted" if i % 3 else "clean", reply)
            yield Entry(audit, [verdict(audit, 0.5)], (i * 37 % 101) / 100, i // 64 + 1)

    data = ReaderData(
        title="many",
        simulated=True,
        collections=[Collection("training", "Training", "Reward", entries())],
        hidden=lambda _: Hidden(None, ""),
    )
    page = write_reader(tmp_path / "reader", data)
    assert page is not None
    browser.look(1440, 900)
    browser.call("Performance.enable", timeDomain="threadTicks")
    times: list[int] = []
    for _ in range(3):
        browser.open(page)
        times.append(int(browser.run("document.documentElement.dataset.ready")))
        if times[-1] < 1_000:
            break
    metrics = {item["name"]: item["value"] for item in browser.call("Performance.getMetrics")["metrics"]}
    # the page's own work, and the clock: on a machine that is busy with other things everything takes longer by as much
    crowded = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    assert metrics["TaskDuration"] < 1, metrics
    assert min(times) < 2_000 * crowded, times
    assert browser.run("document.getElementById('count').textContent") == "2,000 audits"
    # only what is in view exists, and the end is a key away
    assert browser.run("document.querySelectorAll('.row').length") < 60
    browser.run("document.getElementById('list').focus()")
    browser.press("End")
    browser.until("document.querySelector('.row.current')?.getAttribute('aria-posinset') === '2000'")
    browser.look(1440, 400)
    few = browser.run("document.querySelectorAll('.row').length")
    browser.look(1440, 1_400)
    browser.until(f"document.querySelectorAll('.row').length > {few}")
