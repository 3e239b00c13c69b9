// ---------------------------------------------------------------- one audit
let shown = null;   // {row, part, body, view, branch}
let opening = 0;

const pieces = (part, text) => (Array.isArray(text)
  ? text.map(([piece, quote]) => (quote
    ? el("mark", { "data-quote": quote }, el("button", { type: "button", class: "mark-no", "aria-label": `Quote ${quote}: who quotes this`, click: () => flash($(`quote-${quote}`)) }, String(quote)), textOf(part, piece))
    : textOf(part, piece)))
  : [textOf(part, text)]);

// Long texts are closed until asked for; all of it stands in the page, so that quotes and the browser's search find it.
const CLAMP = 3_000;
const bodyOf = (part, text) => {
  const content = el("div", { class: "body", dir: "auto" }, ...pieces(part, text));
  const length = content.textContent.length;
  if (length <= CLAMP && content.textContent.split("\n", 41).length <= 40) return [content];
  content.classList.add("clamped");
  const more = el("button", { type: "button", class: "link more", click: () => unclamp(content) }, `Show all ${length.toLocaleString("en")} characters`);
  return [content, more];
};
const unclamp = (node) => {
  const content = node?.closest(".clamped");
  if (!content) return;
  content.classList.remove("clamped");
  content.parentElement.querySelector(":scope > .more")?.remove();
};

const message = (part, [kind, who, ref, folded, text], { gone = false, kept = false } = {}) => {
  if (kind === "divider") return el("div", { class: `divider ${who}`, role: "separator" }, el("span", {}, textOf(part, text)));
  const label = [who, ref && el("span", { class: "ref" }, ref), gone && el("span", { class: "quiet" }, "rolled back later"), kept && el("span", { class: "quiet" }, "kept from before")];
  if (folded) return el("details", { class: `msg ${kind}` }, el("summary", {}, ...label), ...bodyOf(part, text));
  return el("article", { class: `msg ${kind}${gone || kept ? " faded" : ""}`, tabindex: -1, "data-ref": ref || null, "aria-label": ref ? `${who}, ${ref}` : who },
    el("header", {}, ...label), ...bodyOf(part, text));
};

const hiddenCard = ({ body, view }) => {
  if (body.hidden === null) return el("p", { class: "hidden-none quiet" }, `Hidden block: ${body.hiddenNote}`);
  return el("details", { class: "msg hidden-block", id: "hidden", open: view === "target" },
    el("summary", {}, "Hidden block: what the target was told before everything else. The auditor never sees it."),
    el("div", { class: "body", dir: "auto" }, index.blocks[body.hidden]),
    el("p", { class: "quiet" }, body.hiddenNote));
};

const talkOf = ({ part, body, view, branch }) => {
  if (view === "auditor") {
    const last = body.branches.at(-1);
    const live = body.branches.length > 1 && !body.leftOut ? new Set(last[1].map((place) => body.target[place][2])) : null;
    return body.items.map((item) => message(part, item, { gone: Boolean(live && item[2] && !live.has(item[2])) }));
  }
  if (branch === null) return body.target.map((item) => message(part, item));
  const [, places, shared] = body.branches[branch];
  return places.map((place, number) => message(part, body.target[place], { kept: number < shared }));
};

const drawTalk = () => {
  const { body, view } = shown;
  const nothing = el("p", { class: "quiet" }, view === "auditor" ? "The auditor wrote nothing." : "Nothing passed between auditor and target.");
  const talk = talkOf(shown);
  $("talk").replaceChildren(...[
    hiddenCard(shown), ...(talk.length ? talk : [nothing]),
    body.leftOut > 0 && el("p", { class: "quiet" }, `${body.leftOut.toLocaleString("en")} more messages are in the Inspect log.`),
  ].filter(Boolean));
  document.querySelectorAll("#views button").forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.view === view)));
  const branches = $("branches");
  if (branches) branches.hidden = view !== "target";
  branches?.querySelectorAll("button").forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.branch === String(shown.branch))));
  markFound();
};

const setView = (view, branch = null) => {
  if (!shown) return;
  Object.assign(shown, { view, branch });
  drawTalk();
};
const nextBranch = () => {
  if (!shown || shown.body.branches.length < 2) return;
  const here = shown.view === "target" && shown.branch !== null ? shown.branch + 1 : 0;
  setView("target", here < shown.body.branches.length ? here : null);
};

// ---------------------------------------------------------------- report, verdicts, facts
const quoteList = (quotes) => quotes.length > 0 && el("ol", { class: "quotes" }, ...quotes.map(([number, ref, text, linked, found]) =>
  el("li", { value: number, id: `quote-${number}`, tabindex: -1 },
    el("span", { class: "quote-text", dir: "auto" }, text), " ",
    linked ? el("button", { type: "button", class: "ref", "aria-label": `Go to message ${ref}`, click: () => jump(ref, number) }, ref) : el("span", { class: "ref" }, ref || "no message"),
    !found && el("span", { class: "unfound" }, " not in this audit's target messages"))));

const pairList = (pairs) => pairs.length > 0 && el("dl", { class: "pairs" }, ...pairs.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
const percent = (value) => `${Math.round(100 * (value ?? 0))}%`;

const reportCard = ({ part, body }) => {
  const report = body.report;
  if (!report) {
    const words = textOf(part, body.reportText);
    return el("section", { class: "card" }, el("h3", {}, "Auditor's report"),
      el("p", { class: "verdict-line" }, words ? "Not readable as a report:" : "No report."), words && el("p", { class: "said", dir: "auto" }, words));
  }
  return el("section", { class: "card" }, el("h3", {}, "Auditor's report"),
    el("p", { class: "verdict-line" }, el("b", {}, report.finding ? "Finding" : "No finding"), report.finding || report.confidence ? `, confidence ${percent(report.confidence)}` : ""),
    report.behavior && el("p", { class: "said", dir: "auto" }, report.behavior),
    quoteList(report.evidence),
    report.predictions.length > 0 && el("p", { class: "small" }, `Predictions: ${report.predictions.map(([name, sure]) => `${name} (${percent(sure)})`).join("; ")}`));
};

const verdictCard = (verdict, set) => {
  const others = verdict.others.map((id) => findRow(id, set)).filter(Boolean);
  return el("section", { class: "card" },
    el("h3", {}, `Judge: ${verdict.judge}`, verdict.value && el("span", { class: "value" }, verdict.value)),
    verdict.missing && el("p", { class: "unfound" }, `No verdict: ${verdict.missing}`),
    verdict.reason && el("p", { class: "reason", dir: "auto" }, verdict.reason),
    quoteList(verdict.quotes), pairList(verdict.parts),
    verdict.detail && el("p", { class: "small" }, verdict.detail),
    ...others.map((row) => el("p", { class: "small" }, el("a", { href: addressOf(row) }, `Read the audit it was compared with (${row.set === "references" ? "reference" : scoreText(row.score)})`))));
};

const siblings = (row) => setOf(row.set).rows.filter((other) => other.group === row.group);
const siblingStrip = (row) => {
  const all = siblings(row);
  if (all.length < 2) return null;
  return el("div", { class: "siblings", role: "group", "aria-label": "Audits of the same scenario" }, el("span", { class: "quiet" }, "Same scenario"),
    ...all.map((other) => el("a", { href: addressOf(other), class: "sibling", "aria-current": other === row ? "true" : null }, scoreText(other.score))));
};

const headOf = ({ row, body }) => {
  const where = [row.step === null ? capital(row.suite) : row.set === "references" ? `policy after step ${row.step}` : `Step ${row.step}`, row.seedId, row.category].filter(Boolean);
  const target = { planted: "planted in the target", persona: "not planted: persona only", clean: "not planted: clean target" }[row.condition] ?? row.condition;
  return el("header", { class: "audit-head" },
    el("button", { type: "button", class: "button back", click: backToList }, "‹ All audits"),
    el("div", { class: "head-line" },
      el("div", {}, el("p", { class: "eyebrow" }, where.join(" · ")), el("h2", { id: "audit-h", tabindex: -1 }, capital(row.behavior), " ", el("span", { class: `chip ${row.condition}` }, target))),
      el("div", { class: "score" }, el("b", {}, scoreText(row.score)), el("span", {}, setOf(row.set).scoreName.toLowerCase()))),
    body.error && el("p", { class: "alarm" }, `This audit failed: ${body.error}`),
    el("div", { class: "head-tools" },
      el("div", { class: "switch", id: "views", role: "group", "aria-label": "View" },
        el("button", { type: "button", "data-view": "auditor", click: () => setView("auditor") }, "Auditor view"),
        el("button", { type: "button", "data-view": "target", click: () => setView("target") }, "Target view")),
      body.branches.length > 1 && el("div", { class: "switch", id: "branches", role: "group", "aria-label": "Branch" },
        el("button", { type: "button", "data-branch": "null", click: () => setView("target") }, "All branches"),
        ...body.branches.map(([title], number) => el("button", { type: "button", "data-branch": number, title, click: () => setView("target", number) }, String(number + 1)))),
      siblingStrip(row)));
};

const drawAudit = () => {
  const { row, part, body } = shown;
  $("audit").replaceChildren(headOf(shown), el("div", { class: "audit-grid" },
    el("div", { class: "talk", id: "talk" }),
    el("aside", { class: "side", "aria-label": "Report and verdicts" },
      reportCard(shown), ...body.verdicts.map((verdict) => verdictCard(verdict, row.set)),
      !body.verdicts.length && el("section", { class: "card" }, el("h3", {}, "Judges"), el("p", { class: "quiet" }, row.set === "references" ? "A reference is compared with, not judged alone." : "No verdict.")),
      el("details", { class: "card", open: true }, el("summary", {}, "Scenario"), el("p", { class: "said", dir: "auto" }, textOf(part, body.seed)), pairList(body.facts)))));
  drawTalk();
};

// ---------------------------------------------------------------- opening, jumping
const addressOf = (row) => `#${row.set}/${encodeURIComponent(row.id)}`;

const openAudit = async (row, { focus = false, view = shown?.view ?? "auditor", ref = "" } = {}) => {
  const mine = ++opening;
  current = row;
  if (state.set.key !== row.set) chooseSet(row.set);
  revealRow();
  remember(ref ? `${addressOf(row)}/${ref}` : addressOf(row));
  try {
    const part = await loadPart(row.part);
    if (mine !== opening) return;
    shown = { row, part, body: part.audits[row.place], view, branch: null };
    drawAudit();
    $("audit").scrollTop = 0;
    if (!ref) scrollTo(0, 0);
  } catch (error) {
    if (mine !== opening) return;
    shown = null;
    $("audit").replaceChildren(el("p", { class: "empty alarm" }, error.message));
  }
  if (focus || ref) $("panes").classList.add("reading");
  if (ref && shown) jump(ref);
  else if (focus) ($("audit-h") ?? $("audit")).focus({ preventScroll: true });
};

const backToList = () => {
  $("panes").classList.remove("reading");
  revealRow();
  $("list").focus();
};

const flash = (node) => {
  if (!node) return;
  document.querySelectorAll(".flash").forEach((other) => other.classList.remove("flash"));
  unclamp(node);
  for (let outer = node.parentElement; outer; outer = outer.parentElement) if (outer.tagName === "DETAILS") outer.open = true;
  node.classList.add("flash");
  node.focus({ preventScroll: true });
  node.scrollIntoView({ block: "center" });
};

// To a message, and to the quoted words in it where they are marked; the other view if this one does not show it.
const jump = (ref, number = 0) => {
  const find = () => [...$("talk").querySelectorAll("article")].find((node) => node.dataset.ref === ref && (!number || node.querySelector(`[data-quote="${Number(number)}"]`)))
    ?? [...$("talk").querySelectorAll("article")].find((node) => node.dataset.ref === ref);
  if (!find()) setView(shown.view === "auditor" ? "target" : shown.branch === null ? "auditor" : "target");
  const article = find();
  if (!article) return;
  const mark = number ? article.querySelector(`[data-quote="${Number(number)}"]`) : null;
  unclamp(mark ?? article.querySelector(".body"));
  flash(article);
  mark?.scrollIntoView({ block: "center" });
  remember(`${addressOf(shown.row)}/${ref}`);
};

const step = (selector, by) => {
  const nodes = [...document.querySelectorAll(selector)].filter((node) => node.offsetParent !== null);
  if (!nodes.length) return;
  const here = nodes.findIndex((node) => node.contains(document.activeElement) || node.classList.contains("flash"));
  const node = nodes[here < 0 ? (by > 0 ? 0 : nodes.length - 1) : Math.min(nodes.length - 1, Math.max(0, here + by))];
  flash(node.tagName === "MARK" ? node.closest("article") ?? node : node);
  node.scrollIntoView({ block: "center" });
};

// What was searched for, highlighted without touching the text.
const markFound = () => {
  if (!globalThis.Highlight || !CSS.highlights) return;
  CSS.highlights.delete("search");
  if (!state.text || !shown || !$("talk")) return;
  const ranges = [];
  const walker = document.createTreeWalker($("audit"), NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node && ranges.length < 500; node = walker.nextNode()) {
    const text = node.data.toLowerCase();
    if (text.length !== node.data.length) continue;
    for (let at = text.indexOf(state.text); at >= 0 && ranges.length < 500; at = text.indexOf(state.text, at + state.text.length)) {
      const range = new Range();
      range.setStart(node, at);
      range.setEnd(node, at + state.text.length);
      ranges.push(range);
    }
  }
  if (ranges.length) CSS.highlights.set("search", new Highlight(...ranges));
};
