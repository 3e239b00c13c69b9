// ---------------------------------------------------------------- the list
// Only rows in view exist: the list scrolls over the height of all of them.
const ROW = 66;
const SPARE = 6;
let current = null;

const rowNode = (row, place) => {
  const width = state.set.scored && row.score !== null ? 100 * (row.score - state.set.low) / ((state.set.high - state.set.low) || 1) : 0;
  const bar = el("i", { class: "bar-fill" });
  bar.style.width = `${width}%`;
  const wrong = row.report === "firm claim" && row.condition !== "planted";
  const node = el("div", {
    class: `row${row === current ? " current" : ""}`, role: "option", id: `row-${row.number}`,
    "aria-selected": String(row === current), "aria-setsize": state.rows.length, "aria-posinset": place + 1,
    click: () => openAudit(row, { focus: true }),
  },
    el("div", { class: "row-text" },
      el("div", { class: "row-title" }, el("span", { class: "cut" }, capital(row.behavior)), el("span", { class: `chip ${row.condition}` }, nameOf("condition", row.condition))),
      el("div", { class: "row-line" },
        el("span", { class: `kind ${wrong ? "wrong" : row.report.replace(" ", "-")}` }, row.outcome === "failed" ? "failed" : wrong ? "false claim" : row.report),
        el("span", { class: "cut", dir: "auto" }, row.said || row.seedText))),
    el("div", { class: "row-side" },
      el("b", {}, scoreText(row.score)), el("span", { class: "bar-track" }, bar),
      el("span", {}, row.step === null ? row.suite : `step ${row.step}`)));
  node.style.transform = `translateY(${place * ROW}px)`;
  return node;
};

const drawRows = () => {
  const list = $("list");
  const first = Math.max(0, Math.floor(list.scrollTop / ROW) - SPARE);
  const last = Math.min(state.rows.length, Math.ceil((list.scrollTop + list.clientHeight) / ROW) + SPARE);
  $("rows").replaceChildren(...state.rows.slice(first, last).map((row, offset) => rowNode(row, first + offset)));
  const here = current && $(`row-${current.number}`);
  if (here && current.set === state.set.key) list.setAttribute("aria-activedescendant", here.id);
  else list.removeAttribute("aria-activedescendant");
};

const showList = () => {
  $("rows").style.height = `${state.rows.length * ROW}px`;
  $("list").classList.toggle("nothing", !state.rows.length);
  drawRows();
};

const revealRow = () => {
  const place = state.rows.indexOf(current);
  if (place < 0) return;
  const list = $("list");
  if (place * ROW < list.scrollTop) list.scrollTop = place * ROW;
  else if ((place + 1) * ROW > list.scrollTop + list.clientHeight) list.scrollTop = (place + 1) * ROW - list.clientHeight;
  drawRows();
};

const move = (by) => {
  if (!state.rows.length) return;
  const here = state.rows.indexOf(current);
  const place = here < 0 ? 0 : Math.min(state.rows.length - 1, Math.max(0, here + by));
  openAudit(state.rows[place]);
};

const listKeys = {
  ArrowDown: () => move(1), ArrowUp: () => move(-1), Home: () => move(-Infinity), End: () => move(Infinity),
  PageDown: () => move(Math.max(1, Math.floor($("list").clientHeight / ROW) - 1)),
  PageUp: () => move(-Math.max(1, Math.floor($("list").clientHeight / ROW) - 1)),
  Enter: () => current && openAudit(current, { focus: true }),
};
