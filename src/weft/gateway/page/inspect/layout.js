/**
 * Which rows of a trace share a line: a frame, the part that it became, and the event that was made of
 * that. Runs of deltas of one item are folded into one line.
 */

import { isDelta } from "./trace.js";

export const LANES = ["frame", "part", "emit"];
/** Deltas in a row that are folded. */
const MIN_FOLDED = 4;

/**
 * @typedef {{ frame: number, part: number, emit: number, run: string | null, count: number, last: Line | null }} Line
 *   indexes of rows, -1 where there is none; a folded run has the first row of each lane, the count
 *   of its lines, and the last of them. A finding stands in the lane of parts.
 */
const line = (frame, part, emit, run = null) => ({ frame, part, emit, run, count: 1, last: null });

/** All lines of a trace, in order, nothing folded. @returns {Line[]} */
export function linesOf(trace) {
  const lines = [];
  const addPart = (frame, part) => {
    const row = trace.rows[part];
    const forwarded = trace.forwardedOf(frame);
    const emits = forwarded < 0 ? trace.emitsOf(row.n) : [forwarded, ...trace.emitsOf(row.n)];
    const findings = trace.findingsOf(part);
    const isPlain = emits.length < 2 && !findings.length && isDelta(row.part) && !row.before;
    lines.push(line(frame, part, emits[0] ?? -1, isPlain ? `${row.stream ?? 0} ${row.part.type} ${row.item}` : null));
    for (let at = 1; at < emits.length; at++) lines.push(line(-1, -1, emits[at]));
    for (const finding of findings) lines.push(line(-1, finding, -1));
  };
  const addFrame = (index) => {
    const parts = trace.partsOf(trace.rows[index].n);
    const findings = trace.findingsOf(index);
    if (!parts.length) {
      const emit = trace.forwardedOf(index);
      lines.push(line(index, -1, emit, emit < 0 && !findings.length ? "nothing" : null));
    }
    parts.forEach((part, at) => addPart(at ? -1 : index, part));
    for (const finding of findings) lines.push(line(-1, finding, -1));
  };
  trace.rows.forEach((row, index) => {
    if (row.lane === "frame") addFrame(index);
    else if (row.lane === "part" && trace.frameAt(row.frame) < 0) addPart(-1, index);
    else if (trace.isAlone(index)) lines.push(row.lane === "emit" ? line(-1, -1, index) : line(-1, index, -1));
  });
  return lines;
}

/** The name of a run, folded or not: it stays the same while rows are added. */
export const runName = (line) => (line.part >= 0 ? `part ${line.part}` : `frame ${line.frame}`);

/**
 * The lines that are shown, and the line of each row (-1: none).
 * @param {import("./trace.js").Trace} trace
 * @param {{ isOpen?: (run: string) => boolean, only?: string | null,
 *   matches?: ((index: number) => boolean) | null }} [options] which runs are not folded, the lane that
 *   is shown alone, and the rows of which one must stand in a line that is shown
 */
export function layout(trace, { isOpen = () => false, only = null, matches = null } = {}) {
  const all = linesOf(trace);
  const shown = [];
  const lineOfRow = new Int32Array(trace.rows.length).fill(-1);
  const note = (one) => {
    for (const lane of LANES) if (one[lane] >= 0) lineOfRow[one[lane]] = shown.length;
  };
  const show = (one) => {
    if (only && one[only] < 0) return;
    if (matches && !LANES.some((lane) => one[lane] >= 0 && matches(one[lane]))) return;
    note(one);
    shown.push(one);
  };
  for (let at = 0; at < all.length; ) {
    const first = all[at];
    let next = at + 1;
    if (first.run !== null) while (next < all.length && all[next].run === first.run) next++;
    const count = next - at;
    if (matches || count < MIN_FOLDED || isOpen(runName(first))) {
      for (; at < next; at++) show(all[at]);
      continue;
    }
    const folded = { ...first, count, last: all[next - 1] };
    for (; at < next; at++) {
      note(all[at]);
      for (const lane of LANES) if (folded[lane] < 0) folded[lane] = all[at][lane];
    }
    if (!only || folded[only] >= 0) shown.push(folded);
  }
  return { lines: shown, lineOfRow };
}
