/** How things stood at a row, and what that row is. */

import { fill, h } from "../ui/dom.js";
import { count, plural, size } from "../ui/format.js";
import { jsonView, valueView } from "../ui/json-view.js";
import { findingView } from "./findings.js";

const KINDS = { text: "text", reasoning: "reasoning", call: "⚙ call" };
/** Characters of an item that are shown; the end of a longer one counts. */
const MAX_SHOWN = 20_000;

/** Fills a panel with the items and facts at a row. */
export function fillState(panel, trace, number) {
  const { items, facts } = trace.stateAt(number);
  const response = facts.findLast((row) => row.part.type === "response-metadata")?.part;
  fill(
    panel,
    h("p", { class: "soft" }, `After row ${count(number)}`, response?.model ? ` · ${response.model}` : ""),
    items.length ? null : h("p", {}, "No text, reasoning or call yet."),
    h("ul", { class: "items" }, items.map(itemView)),
    facts.filter((row) => row.part.type !== "response-metadata").map(factView),
  );
}

function itemView({ item, length, text, isOpen }) {
  const value = text === null ? h("p", { class: "soft" }, `${plural(length, "character")} so far; the text is shown once the response has ended.`) : valueOf(text, isOpen);
  return h(
    "li",
    { class: `item ${item.kind}`, "data-item": item.id },
    h("h3", {}, KINDS[item.kind], item.name ? [" ", h("code", {}, item.name)] : null, " ", h("code", { class: "soft" }, item.id), " ", h("span", { class: "item-state" }, isOpen ? "open" : "✓ ended"), item.invalid && !isOpen ? h("span", { class: "red" }, ` ✗ invalid: ${item.invalid}`) : null),
    value,
  );
}

function valueOf(text, isOpen) {
  const shown = text.length > MAX_SHOWN ? `…${text.slice(-MAX_SHOWN)}` : text;
  return h("pre", { class: isOpen ? "value growing" : "value", tabindex: 0 }, shown);
}

function factView({ part }) {
  if (part.type === "finish") {
    const tokens = part.usage ? ` · ${count(part.usage.input_tokens ?? 0)} in · ${count(part.usage.output_tokens ?? 0)} out` : "";
    return h("p", {}, "■ finish: ", h("code", {}, part.reason), tokens);
  }
  if (part.type === "error") return h("p", { class: "red" }, `✗ ${part.kind}: ${part.message}`);
  if (part.type === "tool-result") return h("p", {}, "↩ result of ", h("code", {}, part.id), " ", JSON.stringify(part.result).slice(0, 300));
  return h("p", {}, part.type, " ", h("code", {}, part.id));
}

const TITLES = {
  frame: (row) => `Frame ${row.n} · ${size(row.size)}${row.t === null ? "" : ` · ${row.t.toFixed(3)} s`}`,
  part: (row) => `Part ${row.n} · ${row.part.type}${row.frame === null ? " · from the end of the input" : ""}`,
  finding: () => "Finding",
  emit: (row) => `Event ${row.n}${row.event ? ` · ${row.event}` : ""}${row.passthrough ? " · the upstream’s own" : ""}${row.takeover ? " · Weft goes on from here" : ""}`,
  end: () => "End of the response",
};

const CONTENTS = {
  frame: (row) => jsonView(row.data, { open: 4 }),
  part: (row) => [valueView(row.part, { open: 3 }), row.before ? [h("h3", {}, "Before"), row.before.map((part) => valueView(part, { open: 2 }))] : null],
  finding: (row) => findingView(row),
  emit: (row) => jsonView(row.data, { open: 3 }),
  end: (row) => valueView(row.response, { open: 2 }),
};

/** Fills the pane of the selected row; findings that stand at it come first. */
export function fillRow(pane, trace, number) {
  const index = number - 1;
  const row = trace.rows[index];
  if (!row) return fill(pane);
  const findings = trace.findingsOf(index).map((one) => findingView(trace.rows[one]));
  fill(pane, h("h2", {}, TITLES[row.lane](row)), findings, CONTENTS[row.lane](row));
}
