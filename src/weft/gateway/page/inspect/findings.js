/** The findings of a trace: what was noticed or repaired, where, and why it matters. */

import { get } from "../api.js";
import { button, fill, h } from "../ui/dom.js";
import { plural } from "../ui/format.js";
import { valueView } from "../ui/json-view.js";

/** @type {Map<string, Promise<any>>} */
const rules = new Map();

/** The rule behind a code, as `weft check --explain` has it. */
export function ruleOf(code) {
  const path = code.split("/").map(encodeURIComponent).join("/");
  if (!rules.has(code)) {
    const found = get(`/v1/rules/${path}`);
    found.catch(() => rules.delete(code));
    rules.set(code, found);
  }
  return rules.get(code);
}

/** A sign and a word, never a colour alone. */
export const SEVERITIES = {
  error: { sign: "✗", word: "violation", class: "red" },
  warning: { sign: "⚠", word: "repair", class: "amber" },
  note: { sign: "·", word: "note", class: "soft" },
};

/** Shows a severity in an element, once it is known. */
async function showSeverity(place, code) {
  const rule = await ruleOf(code).catch(() => null);
  const severity = SEVERITIES[rule?.severity] ?? SEVERITIES.warning;
  place.classList.add(severity.class);
  fill(place, h("span", { "aria-hidden": "true" }, `${severity.sign} `), severity.word);
}

/** Fills a panel with the list. @param {(number: number) => void} go */
export function fillFindings(panel, trace, go) {
  if (!trace.findings.length) {
    return fill(panel, h("p", { class: "good" }, trace.isOver ? "✓ Nothing had to be repaired in this stream." : "Nothing so far."));
  }
  const groups = Map.groupBy(trace.findings, (index) => trace.rows[index].code);
  fill(
    panel,
    h("p", { class: "soft" }, `${plural(trace.findings.length, "finding")}. `, h("kbd", {}, "n"), " and ", h("kbd", {}, "p"), " go from one to the next."),
    [...groups].map(([code, indexes]) => group(code, indexes.map((index) => trace.rows[index]), go)),
  );
}

/** Findings that are listed of each code. */
const MAX_LISTED = 50;

function group(code, rows, go) {
  const severity = h("span", { class: "severity" });
  showSeverity(severity, code);
  const entries = rows.slice(0, MAX_LISTED).map((row) => h("li", {}, button(`row ${row.row}`, () => go(row.row), { kind: "link" }), " ", row.detail));
  return h(
    "section",
    { class: "finding-group" },
    h("h3", {}, severity, " ", h("code", {}, code), rows.length > 1 ? h("span", { class: "soft" }, ` ${rows.length}`) : null),
    why(code),
    h("ul", {}, entries, rows.length > MAX_LISTED ? h("li", { class: "soft" }, `and ${rows.length - MAX_LISTED} more`) : null),
  );
}

/** A fold with the text of the rule, which is read when it is opened. */
export function why(code) {
  const text = h("div", { class: "rule" });
  const fold = h("details", { class: "why" }, h("summary", {}, "why?"), text);
  fold.addEventListener("toggle", async () => {
    if (text.childElementCount) return;
    const rule = await ruleOf(code).catch((problem) => ({ why: problem.message }));
    fill(
      text,
      rule.promise ? h("p", {}, rule.promise) : null,
      rule.why ? h("p", {}, rule.why) : null,
      rule.example ? h("pre", { tabindex: 0 }, rule.example.trim()) : null,
      rule.clients?.length ? h("ul", {}, rule.clients.map((one) => h("li", {}, `${one.client} ${one.version} ${one.effect}: ${one.says}`))) : null,
    );
  });
  return fold;
}

/** One finding in full, for the pane of the selected row. */
export function findingView(row) {
  const severity = h("span", { class: "severity" });
  showSeverity(severity, row.code);
  const compare = (name, parts) => (parts ? h("div", {}, h("h3", {}, name), parts.map((part) => valueView(part, { open: 2 }))) : null);
  return h(
    "div",
    { class: "finding-view" },
    h("p", {}, severity, " ", h("code", {}, row.code)),
    h("p", {}, row.detail),
    row.before || row.after ? h("div", { class: "compare" }, compare("Before", row.before), compare("After", row.after)) : null,
    why(row.code),
  );
}
