/** JSON as a tree that can be folded. Values are drawn when they are opened, so size costs nothing. */

import { button, h } from "./dom.js";
import { visible } from "./format.js";

const CHUNK = 100;
const LONG = 400;

/**
 * Returns a view of a JSON text. A text that is not JSON is shown as it is.
 * @param {string} text
 * @param {{ open?: number, root?: boolean }} [options] the levels that are open at first, and whether
 *   the outermost braces are shown
 */
export function jsonView(text, options = {}) {
  try {
    return valueView(JSON.parse(text), options);
  } catch {
    return h("pre", { class: "json raw" }, visible(text));
  }
}

/** Returns a view of a value. Without `root`, the members of an object stand for it. */
export function valueView(value, { open = 1, root = true } = {}) {
  const isFlat = !root && value !== null && typeof value === "object" && Object.keys(value).length > 0;
  if (!isFlat) return h("div", { class: "json" }, node(null, value, open));
  return h("div", { class: "json flat" }, children(Object.entries(value), 0, open - 1));
}

function node(name, value, open) {
  const label = name === null ? null : [h("span", { class: "name" }, visible(name)), ": "];
  if (value === null || typeof value !== "object") {
    return h("div", { class: "leaf" }, label, scalar(value));
  }
  const entries = Array.isArray(value) ? [...value.entries()] : Object.entries(value);
  const [left, right] = Array.isArray(value) ? "[]" : "{}";
  if (!entries.length) return h("div", { class: "leaf" }, label, left + right);
  const summary = h(
    "summary",
    {},
    label,
    h("span", { class: "brace" }, left),
    h("span", { class: "count" }, ` ${entries.length} `),
    h("span", { class: "brace" }, right),
  );
  const details = /** @type {HTMLDetailsElement} */ (h("details", { open: open > 0 }, summary));
  const draw = () => {
    if (details.childElementCount === 1) details.append(children(entries, 0, open - 1));
  };
  if (open > 0) draw();
  details.addEventListener("toggle", draw);
  return details;
}

function children(entries, start, open) {
  const end = Math.min(entries.length, start + CHUNK);
  const part = h("div", { class: "members" });
  for (const [name, value] of entries.slice(start, end)) part.append(node(String(name), value, open));
  if (end < entries.length) {
    const more = button(`${entries.length - end} more`, () => {
      more.replaceWith(children(entries, end, open));
    });
    part.append(more);
  }
  return part;
}

function scalar(value) {
  const kind = value === null ? "null" : typeof value;
  const text = visible(JSON.stringify(value));
  if (text.length <= LONG) return h("span", { class: kind }, text);
  const short = h("span", { class: kind }, `${text.slice(0, LONG)}…`);
  const more = button(`${text.length - LONG} more characters`, () => {
    short.textContent = text;
    more.remove();
  });
  return [short, " ", more];
}
