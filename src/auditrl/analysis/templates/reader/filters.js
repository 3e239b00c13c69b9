// ---------------------------------------------------------------- filters
const CHOICES = [["behavior", "Behavior"], ["condition", "Target"], ["report", "Report"], ["outcome", "Outcome"], ["category", "Strategy"], ["suite", "Suite"]];
const NAMES = {
  condition: { planted: "planted", persona: "persona only", clean: "clean" },
  outcome: { yes: "judged yes", no: "judged no" },
};
const SORTS = {
  order: ["Order of the run", (a, b) => a.number - b.number],
  newest: ["Newest step", (a, b) => (b.step ?? 0) - (a.step ?? 0) || a.number - b.number],
  high: ["Highest score", (a, b) => (b.score ?? -Infinity) - (a.score ?? -Infinity) || a.number - b.number],
  low: ["Lowest score", (a, b) => (a.score ?? Infinity) - (b.score ?? Infinity) || a.number - b.number],
  long: ["Most turns", (a, b) => b.turns - a.turns || a.number - b.number],
};
const BINS = 24;

const state = { set: null, rows: [], text: "", deep: false, found: null, choice: {}, steps: null, scores: null, sort: "order" };
const nameOf = (field, value) => NAMES[field]?.[value] ?? value;

const matches = (row, but = "") => {
  for (const [field] of CHOICES) if (field !== but && state.choice[field] && row[field] !== state.choice[field]) return false;
  if (state.steps && (row.step === null || row.step < state.steps[0] || row.step > state.steps[1])) return false;
  if (but !== "score" && state.scores && (row.score === null || row.score < state.scores[0] || row.score > state.scores[1])) return false;
  return !state.text || row.words.includes(state.text) || Boolean(state.found?.has(row.number));
};

const applyFilters = () => {
  state.rows = state.set.rows.filter((row) => matches(row)).sort(SORTS[state.sort][1]);
  const active = Object.values(state.choice).filter(Boolean).length + Boolean(state.steps) + Boolean(state.scores);
  $("active").textContent = active ? ` · ${active}` : "";
  $("clear").hidden = !active && !state.text;
  $("count").textContent = state.rows.length === state.set.rows.length
    ? `${state.rows.length.toLocaleString("en")} audits`
    : `${state.rows.length.toLocaleString("en")} of ${state.set.rows.length.toLocaleString("en")} audits`;
  drawHistogram();
  showList();
};

const select = (field, label) => {
  const counts = new Map();
  for (const row of state.set.rows) if (row[field]) counts.set(row[field], (counts.get(row[field]) ?? 0) + 1);
  if (counts.size < 2) return null;
  const options = [...counts].sort(([a], [b]) => String(a).localeCompare(String(b)))
    .map(([value, count]) => el("option", { value, selected: state.choice[field] === value }, `${capital(nameOf(field, value))} (${count.toLocaleString("en")})`));
  const change = (event) => { state.choice[field] = event.target.value; applyFilters(); };
  return el("label", {}, el("span", {}, label), el("select", { id: `by-${field}`, change }, el("option", { value: "" }, "All"), ...options));
};

const stepFilter = () => {
  const [first, last, count] = extent(state.set.rows.map((row) => row.step));
  if (!count || first === last) return null;
  const read = () => {
    const [from, to] = ["from", "to"].map((id, place) => (($(id).value === "" || !Number.isFinite($(id).valueAsNumber)) ? [first, last][place] : $(id).valueAsNumber));
    state.steps = from <= first && to >= last ? null : [from, to];
    applyFilters();
  };
  const box = (id, value, label) => el("input", { type: "number", id, min: first, max: last, placeholder: value, "aria-label": label, input: read });
  return el("fieldset", {}, el("legend", {}, "Step"), box("from", first, "First step"), el("span", { class: "quiet" }, "to"), box("to", last, "Last step"));
};

const scoreFilter = () => {
  const { low, high, scored, scoreName } = state.set;
  if (!scored || low === high) return null;
  const at = (value) => low + (high - low) * value / 1000;
  const read = (event) => {
    const [from, to] = [$("score-low"), $("score-high")];
    if (Number(from.value) > Number(to.value)) event.target.value = event.target === from ? to.value : from.value;
    const [a, b] = [Number(from.value), Number(to.value)];
    // a whisker of room: scores are rounded, and so are the sliders
    state.scores = a === 0 && b === 1000 ? null : [at(a) - 1e-9, at(b) + 1e-9];
    $("score-range").textContent = `${scoreText(at(a))} to ${scoreText(at(b))}`;
    applyFilters();
  };
  const slider = (id, value, label) => el("input", { type: "range", id, min: 0, max: 1000, step: 5, value, "aria-label": label, input: read });
  return el("fieldset", { class: "scores" },
    el("legend", {}, `${scoreName} `, el("span", { id: "score-range", class: "quiet" }, `${scoreText(low)} to ${scoreText(high)}`)),
    el("div", { id: "histogram", class: "histogram", "aria-hidden": "true" }),
    el("div", { class: "sliders" }, slider("score-low", 0, `Lowest ${scoreName.toLowerCase()}`), slider("score-high", 1000, `Highest ${scoreName.toLowerCase()}`)));
};

// How the scores of what the other filters leave are spread.
const drawHistogram = () => {
  const box = $("histogram");
  if (!box) return;
  const { low, high, rows } = state.set;
  const bins = new Array(BINS).fill(0);
  for (const row of rows) {
    if (row.score !== null && matches(row, "score")) bins[Math.min(BINS - 1, Math.floor(BINS * (row.score - low) / (high - low)))] += 1;
  }
  const top = Math.max(...bins, 1);
  box.replaceChildren(...bins.map((count, place) => {
    const middle = low + (high - low) * (place + 0.5) / BINS;
    const bar = el("i", { class: state.scores && (middle < state.scores[0] || middle > state.scores[1]) ? "off" : "" });
    bar.style.height = `${count ? Math.max(6, 100 * count / top) : 0}%`;
    return bar;
  }));
};

const buildFilters = () => {
  $("filters").replaceChildren(...[...CHOICES.map(([field, label]) => select(field, label)), stepFilter(), scoreFilter()].filter(Boolean));
  $("sort").replaceChildren(...Object.entries(SORTS)
    .filter(([key]) => key !== "newest" || state.set.rows.some((row) => row.step !== null))
    .map(([key, [label]]) => el("option", { value: key, selected: key === state.sort }, label)));
};

const clearFilters = () => {
  Object.assign(state, { text: "", found: null, choice: {}, steps: null, scores: null });
  $("text").value = "";
  $("progress").textContent = "";
  search += 1;
  buildFilters();
  applyFilters();
};

// ---------------------------------------------------------------- search
// The list's words are in the index. Messages are searched part by part; a newer search ends an older one.
let search = 0;
const wordsOf = (part, body) => [...body.items, ...body.target]
  .map(([, , , , text]) => (Array.isArray(text) ? text.map(([piece]) => textOf(part, piece)).join("") : textOf(part, text)))
  .concat(body.verdicts.map((verdict) => verdict.reason), body.report?.behavior ?? "").join("\n").toLowerCase();

const runSearch = async () => {
  const mine = ++search;
  state.text = $("text").value.trim().toLowerCase();
  state.deep = $("deep").checked;
  state.found = state.deep && state.text ? new Set() : null;
  $("progress").textContent = "";
  applyFilters();
  if (!state.found) return;
  const byPart = new Map();
  for (const row of state.set.rows) byPart.set(row.part, [...(byPart.get(row.part) ?? []), row]);
  let done = 0;
  for (const [number, rows] of byPart) {
    const part = await loadPart(number).catch(() => null);
    if (mine !== search) return;
    for (const row of rows) if (part && wordsOf(part, part.audits[row.place]).includes(state.text)) state.found.add(row.number);
    done += 1;
    $("progress").textContent = done < byPart.size ? `${done} of ${byPart.size} files` : `${state.found.size.toLocaleString("en")} found`;
  }
  applyFilters();
  markFound();
};
