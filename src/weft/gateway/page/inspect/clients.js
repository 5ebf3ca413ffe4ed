/** What known clients make of the stream of the upstream, and of the one that Weft emitted. */

import { button, fill, h } from "../ui/dom.js";
import { why } from "./findings.js";

const GROUPS = [
  ["emitted", "What Weft emitted", "✓ No known client has trouble with it."],
  ["upstream", "What the upstream sent", "✓ No known client has trouble with it."],
];

/** @param {(number: number) => void} go */
export function fillClients(panel, trace, go) {
  if (!trace.end) return fill(panel, h("p", { class: "soft" }, "Known once the response has ended."));
  const { verdicts } = trace.end;
  const groups = trace.frameAt(0) >= 0 ? GROUPS : GROUPS.slice(0, 1);
  fill(
    panel,
    groups.map(([on, title, good]) => {
      const some = verdicts.filter((one) => one.on === on);
      const list = some.length ? h("ul", { class: "verdicts" }, some.map((one) => verdict(one, go))) : h("p", { class: "good" }, good);
      return h("section", {}, h("h3", {}, title), list);
    }),
  );
}

function verdict({ client, version, effect, says, rule, row }, go) {
  const isBad = effect === "raises";
  return h(
    "li",
    {},
    h("p", {}, h("strong", {}, client), ` ${version} `, h("span", { class: isBad ? "red" : "amber" }, `${isBad ? "✗" : "⚠"} ${effect}`), row ? [" at ", button(`row ${row}`, () => go(row), { kind: "link" })] : null),
    h("p", {}, says, " ", h("code", { class: "soft" }, rule)),
    why(rule),
  );
}
