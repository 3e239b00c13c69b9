"use strict";
// ---------------------------------------------------------------- elements and data
// Model-written text only ever becomes text nodes, attribute values with constant names, or a part of the address after #.

const $ = (id) => document.getElementById(id);

const el = (tag, attributes = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (typeof value === "function") node.addEventListener(name, value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return node;
};

// A page opened from disk may not fetch, but it may run scripts: each data file hands JSON text to auditrlReader.
const arrivals = new Map();
const SCRIPT = /^data\/(index|part-\d{4,})\.js$/;
const checked = (address) => {
  if (!SCRIPT.test(address)) throw new TypeError("not a data file of this reader");
  return address;
};
const policy = globalThis.trustedTypes?.createPolicy("auditrl-reader", { createScriptURL: checked });
globalThis.auditrlReader = (name, text) => arrivals.get(name)?.(JSON.parse(text));

const loadScript = (name) => new Promise((resolve, reject) => {
  const address = `data/${name}.js`;
  const script = document.createElement("script");
  const over = () => {
    arrivals.delete(name);
    script.remove();
    reject(new Error(`${address} is missing or damaged. Write the reader again with “auditrl report”.`));
  };
  arrivals.set(name, resolve);
  script.addEventListener("load", over);   // does nothing once the data came
  script.addEventListener("error", over);
  script.src = policy ? policy.createScriptURL(address) : checked(address);
  document.head.append(script);
});

// Parts that were opened last stay in memory.
const KEPT = 24;
const parts = new Map();
const loadPart = (number) => {
  let found = parts.get(number);
  parts.delete(number);
  found ??= loadScript(`part-${String(number).padStart(4, "0")}`);
  parts.set(number, found);
  found.catch(() => parts.delete(number));
  if (parts.size > KEPT) parts.delete(parts.keys().next().value);
  return found;
};
const textOf = (part, value) => (typeof value === "number" ? part.texts[value] : value);

// Least, greatest and count of the numbers among values.
const extent = (values) => values.reduce(([low, high, count], value) => (value === null ? [low, high, count] : [Math.min(low, value), Math.max(high, value), count + 1]), [Infinity, -Infinity, 0]);

// The index: sets of rows, each row an object. Ids repeat between sets (before and after training).
const index = { sets: [], byId: new Map() };
const loadIndex = async () => {
  const raw = await loadScript("index");
  if (raw.format !== 1) throw new Error(`data/index.js has format ${raw.format}, this page reads 1. Write the reader again with “auditrl report”.`);
  Object.assign(index, raw);
  index.sets = raw.sets.map((set) => {
    const rows = set.rows.map((values, number) => {
      const row = { number, set: set.key };
      raw.fields.forEach((field, place) => { row[field] = values[place]; });
      [row.seedId, row.seedText] = raw.seeds[row.seed];
      row.words = [row.id, row.behavior, row.seedText, row.said, row.suite, row.category].join("\n").toLowerCase();
      index.byId.set(`${set.key}/${row.id}`, row);
      return row;
    });
    const [low, high, scored] = extent(rows.map((row) => row.score));
    return { ...set, rows, low, high, scored };
  });
};
const findRow = (id, set) => index.byId.get(`${set}/${id}`) ?? index.byId.get(`references/${id}`) ?? null;
const setOf = (key) => index.sets.find((set) => set.key === key);
const scoreText = (score) => (score === null ? "–" : Number.isInteger(score) || Math.abs(score) >= 10 ? score.toFixed(Number.isInteger(score) ? 0 : 1) : score.toFixed(2));
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
