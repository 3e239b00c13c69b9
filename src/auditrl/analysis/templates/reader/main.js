// ---------------------------------------------------------------- sets, address, theme, keys
const chooseSet = (key) => {
  Object.assign(state, { set: setOf(key), text: "", found: null, choice: {}, steps: null, scores: null });
  search += 1;
  $("text").value = "";
  $("progress").textContent = "";
  document.querySelectorAll("#sets button").forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.set === key)));
  $("notes").replaceChildren(...[...index.notes, ...state.set.notes].map((note) => el("li", {}, note)));
  if (state.sort === "newest" && state.set.rows.every((row) => row.step === null)) state.sort = "order";
  buildFilters();
  $("list").scrollTop = 0;
  applyFilters();
};

// The address names the audit, so that it can be kept and sent; filters are not part of it.
let remembered = "";
const remember = (address) => {
  remembered = address;
  try { history.replaceState(null, "", address); } catch { location.hash = address; }
};
const fromAddress = async () => {
  const [key, id, ref] = location.hash.slice(1).split("/");
  if (!setOf(key)?.rows.length) return false;
  let row = null;
  try { row = findRow(decodeURIComponent(id ?? ""), key); } catch { /* not an address of ours */ }
  if (!row || row.set !== key) {
    chooseSet(key);
    if (!id) return false;
    $("audit").replaceChildren(el("p", { class: "empty" }, "This audit is not in this reader: its step was left out, or the reader was written for other audits. The list shows what there is."));
    return true;
  }
  await openAudit(row, { ref: /^M\d{1,6}$/.test(ref ?? "") ? ref : "", focus: matchMedia("(max-width: 56rem)").matches });
  return true;
};

const themes = ["auto", "light", "dark"];
const stored = () => { try { return localStorage.getItem("auditrl-theme"); } catch { return null; } };
let theme = themes.includes(stored()) ? stored() : "auto";
const showTheme = () => {
  if (theme === "auto") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = theme;
  $("theme").textContent = `Theme: ${theme}`;
};
const nextTheme = () => {
  theme = themes[(themes.indexOf(theme) + 1) % themes.length];
  showTheme();
  try { localStorage.setItem("auditrl-theme", theme); } catch { /* stays for this visit */ }
};

const toggleFilters = (open = $("filters").hidden) => {
  $("filters").hidden = !open;
  $("filters-open").setAttribute("aria-expanded", String(open));
  drawHistogram();
};
const sibling = (by) => {
  if (!current) return;
  const all = siblings(current);
  openAudit(all[(all.indexOf(current) + by + all.length) % all.length]);
};
const toggleHidden = () => { const node = $("hidden"); if (node) { node.open = !node.open; if (node.open) flash(node); } };

const KEYS = [
  ["j", "Next audit", () => move(1)],
  ["k", "Previous audit", () => move(-1)],
  ["n", "Next message", () => step("#talk article", 1)],
  ["p", "Previous message", () => step("#talk article", -1)],
  ["e", "Next quoted words", () => step("#talk mark", 1)],
  ["]", "Next audit of the same scenario", () => sibling(1)],
  ["[", "Previous audit of the same scenario", () => sibling(-1)],
  ["v", "Auditor view, target view", () => shown && setView(shown.view === "auditor" ? "target" : "auditor")],
  ["b", "Next branch", nextBranch],
  ["h", "Hidden block", toggleHidden],
  ["/", "Search", () => { $("panes").classList.remove("reading"); $("text").focus(); $("text").select(); }],
  ["f", "Filters", () => { toggleFilters(); $("panes").classList.remove("reading"); if (!$("filters").hidden) $("filters").querySelector("select, input")?.focus(); }],
  ["t", "Theme", nextTheme],
  ["?", "This help", () => $("help").showModal()],
  ["Escape", "Leave the search, the audit or this help", null],
];

const onKey = (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || $("help").open) return;
  const typing = event.target.closest?.("input:not([type=checkbox], [type=range]), select, textarea");
  if (event.key === "Escape") {
    if (typing || $("panes").classList.contains("reading")) backToList();
    return;
  }
  if (typing) {
    if (event.target === $("text") && (event.key === "Enter" || event.key === "ArrowDown")) {
      event.preventDefault();
      if (!state.rows.includes(current)) move(0);
      $("list").focus();
    }
    return;
  }
  const action = (event.target === $("list") && listKeys[event.key]) || KEYS.find(([key]) => key === event.key)?.[2];
  if (!action) return;
  event.preventDefault();
  action();
};

const listen = () => {
  addEventListener("keydown", onKey);
  addEventListener("hashchange", () => { if (location.hash !== remembered) fromAddress(); });
  new ResizeObserver(drawRows).observe($("list"));
  addEventListener("beforeprint", () => {
    document.querySelectorAll("#audit details").forEach((node) => { node.open = true; });
    document.querySelectorAll("#audit .clamped").forEach(unclamp);
  });
  $("list").addEventListener("scroll", () => requestAnimationFrame(drawRows), { passive: true });
  let waiting = 0;
  $("text").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(runSearch, $("deep").checked ? 250 : 60); });
  $("deep").addEventListener("change", runSearch);
  $("clear").addEventListener("click", () => { clearFilters(); $("list").focus(); });
  $("sort").addEventListener("change", (event) => { state.sort = event.target.value; $("list").scrollTop = 0; applyFilters(); });
  $("filters-open").addEventListener("click", () => toggleFilters());
  $("theme").addEventListener("click", nextTheme);
  $("help-open").addEventListener("click", () => $("help").showModal());
  $("help-close").addEventListener("click", () => $("help").close());
  $("skip").addEventListener("click", (event) => { event.preventDefault(); ($("audit-h") ?? $("audit")).focus(); });
};

const start = async () => {
  showTheme();
  $("keys").replaceChildren(...KEYS.flatMap(([key, what]) => [el("dt", {}, el("kbd", {}, key === "Escape" ? "Esc" : key)), el("dd", {}, what)]));
  try {
    await loadIndex();
  } catch (error) {
    $("loading").textContent = error.message;
    return;
  }
  $("title").textContent = index.title;
  if (index.report) { $("report-link").setAttribute("href", index.report); $("report-link").hidden = false; }
  if (index.simulated) index.notes = ["Simulated world: a model of the method, no evidence about real models.", ...index.notes];
  $("sets").replaceChildren(...index.sets.map((set) => el("button", {
    type: "button", "data-set": set.key, click: () => { chooseSet(set.key); if (state.rows.length) openAudit(state.rows[0]); },
  }, `${set.title} `, el("span", { class: "quiet" }, set.rows.length.toLocaleString("en")))));
  listen();
  chooseSet(index.sets.find((set) => set.rows.length).key);
  if (!await fromAddress()) await openAudit(state.rows[0]);
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
};

start();
