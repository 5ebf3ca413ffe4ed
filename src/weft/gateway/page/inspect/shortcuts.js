/** The keys of the inspector. */

import { bind } from "../ui/keys.js";
import { saveCase } from "./case.js";
import { DIALECTS } from "./source.js";

/**
 * Binds them; returns functions that unbind them.
 * @param {{ source: import("./source.js").Source, lanes: import("./lanes.js").Lanes,
 *   scrubber: import("./scrubber.js").Scrubber, panels: import("./panels.js").Panels,
 *   trace: () => import("./trace.js").Trace, goNext: (numbers: number[], step: number) => void,
 *   setDialect: (name: string) => void }} parts
 */
export function bindShortcuts({ source, lanes, scrubber, panels, trace, goNext, setDialect }) {
  const item = (step) => goNext([...trace().items.values()].map((one) => one.rows[0]), step);
  const finding = (step) => goNext(trace().findings.map((index) => index + 1), step);
  const shortcuts = [
    ["j", "Next line", () => lanes.move(1)],
    ["k", "Line before", () => lanes.move(-1)],
    ["h", "Lane to the left", () => lanes.moveLane(-1)],
    ["l", "Lane to the right", () => lanes.moveLane(1)],
    [" ", "Play or pause", () => scrubber.toggle()],
    ["]", "Next item", () => item(1)],
    ["[", "Item before", () => item(-1)],
    ["n", "Next finding", () => finding(1)],
    ["p", "Finding before", () => finding(-1)],
    [".", "Fold or unfold a run of deltas", () => lanes.toggle()],
    ...DIALECTS.map(([name, label], index) => [String(index + 1), `Emit as ${label}`, () => setDialect(name)]),
    ["w", "Waterfall", () => panels.show("waterfall")],
    ["d", "Compare with another stream", () => panels.show("diff")],
    ["s", "Save as test", () => saveCase(source)],
  ];
  return shortcuts.map(([keys, about, run]) => bind("Inspector", keys, about, run));
}
