/** When things happened: one bar for each item, silences and keepalives. */

import { get } from "../api.js";
import { button, fill, h, svg } from "../ui/dom.js";
import { plural } from "../ui/format.js";

const WIDTH = 1000;
/** The width of what took no time. */
const MIN_WIDTH = 4;
const MAX_BARS = 200;
/** Seconds without a frame that are shown as a silence. */
const SILENCE = 0.5;

/**
 * @typedef {{ label: string, kind: string, spans: [number, number][], detail: string, go?: () => void }} Bar
 *   spans are in the unit of the axis
 */

/** The bars as elements. `unit` is "s", or what is counted. @param {Bar[]} bars */
export function waterfall(bars, total, unit) {
  const scale = (value) => (total > 0 ? (value / total) * WIDTH : 0);
  const draw = (bar) => {
    const rects = bar.spans.map(([start, end]) => svg("rect", { x: Math.min(scale(start), WIDTH - MIN_WIDTH).toFixed(1), y: 2, width: Math.max(MIN_WIDTH, scale(end) - scale(start)).toFixed(1), height: 12 }));
    const picture = svg("svg", { class: `bar-track ${bar.kind}`, viewBox: `0 0 ${WIDTH} 16`, preserveAspectRatio: "none", "aria-hidden": "true" }, rects);
    const label = bar.go ? button(bar.label, bar.go, { kind: "link" }) : h("span", {}, bar.label);
    return h("li", {}, h("span", { class: "bar-label" }, label), picture, h("span", { class: "bar-detail" }, bar.detail));
  };
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((part) => h("span", {}, unit === "s" ? `${(part * total).toFixed(total < 1 ? 3 : 1)} s` : Math.round(part * total)));
  const rest = bars.length - MAX_BARS;
  return h(
    "div",
    { class: "waterfall" },
    h("div", { class: "axis", "aria-hidden": "true" }, h("span", {}), h("span", { class: "ticks" }, ticks), h("span", {})),
    h("ol", {}, bars.slice(0, MAX_BARS).map(draw)),
    rest > 0 ? h("p", { class: "soft" }, `and ${plural(rest, "more item")}`) : null,
  );
}

/**
 * Fills a panel with the waterfall of a trace, and that of the run it is of.
 * @param {(number: number) => void} go @param {string | null} run
 */
export function fillWaterfall(panel, trace, go, run = null) {
  const frames = trace.rows.filter((row) => row.lane === "frame");
  const hasTimes = frames.length > 0 && frames.every((row) => row.t !== null);
  const at = hasTimes ? (number) => timeBefore(trace, number) : (number) => number;
  const total = hasTimes ? frames.at(-1).t : trace.last;
  const unit = hasTimes ? "s" : "rows";
  const work = [...items(trace, at, unit, go), ...executions(trace, at, unit, go)].sort((a, b) => a.spans[0][0] - b.spans[0][0]);
  const bars = [...(hasTimes ? arrivals(frames, go) : []), ...work, ...keepalives(trace, at)];
  fill(
    panel,
    hasTimes ? null : h("p", { class: "soft" }, "Nothing says when these frames arrived: the axis counts rows."),
    waterfall(bars, total, unit),
    run ? runSection(run, trace.isOver) : null,
  );
}

/** @type {Map<string, HTMLElement>} drawn once: the panel is drawn with every row that comes */
const runSections = new Map();

function runSection(run, isOver) {
  const key = `${run} ${isOver}`;
  if (!runSections.has(key)) {
    const place = h("div", {}, h("p", { class: "soft" }, "Reading the run…"));
    runSections.clear();
    runSections.set(key, h("section", { "aria-label": "Run" }, h("h3", {}, "The run: its turns, tools and waits"), place));
    readRunEvents(run).then(
      (events) => {
        const { bars, total } = runBars(events);
        fill(place, waterfall(bars, total, "s"));
      },
      (problem) => fill(place, h("p", { class: "red" }, problem.message)),
    );
  }
  return runSections.get(key);
}

/** The time of the last frame up to a row. */
function timeBefore(trace, number) {
  for (let index = number - 1; index >= 0; index--) {
    if (trace.rows[index].lane === "frame") return trace.rows[index].t;
  }
  return 0;
}

const seconds = (time) => `${time.toFixed(time < 0.1 ? 3 : 2)} s`;
const length = (span, unit) => (unit === "s" ? seconds(span[1] - span[0]) : plural(span[1] - span[0], "row"));

function arrivals(frames, go) {
  const first = frames[0];
  const bars = [{ label: "first byte", kind: "waiting", spans: [[0, first.t]], detail: seconds(first.t), go: () => go(first.row) }];
  const silences = frames.slice(1).map((row, at) => [frames[at].t, row.t]).filter(([from, to]) => to - from >= SILENCE);
  if (silences.length) {
    const sum = silences.reduce((all, [from, to]) => all + to - from, 0);
    bars.push({ label: plural(silences.length, "silence"), kind: "silence", spans: silences, detail: seconds(sum) });
  }
  return bars;
}

function items(trace, at, unit, go) {
  return [...trace.items.values()].map((item) => {
    const span = [at(item.rows[0]), at(item.rows.at(-1))];
    return { label: item.kind === "call" ? `⚙ ${item.name || "(no name)"}` : item.kind, kind: item.kind, spans: [span], detail: length(span, unit), go: () => go(item.rows[0]) };
  });
}

/** From the end of a call to its result, where the upstream or an agent ran the tool. */
function executions(trace, at, unit, go) {
  const calls = new Map([...trace.items.values()].filter((item) => item.kind === "call").map((item) => [`${item.stream} ${item.id}`, item]));
  return trace.facts
    .filter((row) => row.part.type === "tool-result" && !row.part.preliminary)
    .flatMap((row) => {
      const call = calls.get(`${row.stream ?? 0} ${row.item}`);
      if (!call || call.closed > row.row) return [];
      const span = [at(call.closed), at(row.row)];
      return [{ label: `↩ ${call.name} ran`, kind: "execution", spans: [span], detail: length(span, unit), go: () => go(row.row) }];
    });
}

function keepalives(trace, at) {
  if (!trace.keepalives.length) return [];
  const spans = trace.keepalives.map((row) => [at(row.row), at(row.row)]);
  return [{ label: "keepalives", kind: "keepalive", spans, detail: String(spans.length) }];
}

// Runs

const MAX_EVENTS = 2000;

/** The events of a run after a number. */
export async function readRunEvents(run, after = 0) {
  const found = [];
  for (let last = after; ; ) {
    const page = await get(`/v1/runs/${encodeURIComponent(run)}/events`, { limit: 100, after: last });
    found.push(...page.data);
    if (!page.has_more || found.length >= MAX_EVENTS) return found;
    last = page.data.at(-1).seq;
  }
}

const STARTS = { "turn.started": "turn", "call.intended": "execution", "approval.requested": "silence", "call.parked": "silence" };
const ENDS = {
  "turn.finished": ["turn.started"],
  "turn.interrupted": ["turn.started"],
  "call.finished": ["call.intended"],
  "call.parked": ["call.intended"],
  "call.resolved": ["call.parked"],
  "approval.decided": ["approval.requested"],
};

/** The bars of a run's log: its turns, its tool executions, and what it waited for. */
export function runBars(events, now = Date.now() / 1000) {
  const [zero, last] = [events[0]?.at ?? now, events.at(-1)];
  const end = /^run\.(finished|failed|cancelled)$/.test(last?.kind ?? "") ? last.at : now;
  const names = new Map(events.flatMap((event) => (event.calls ?? []).map((call) => [call.id, call.name])));
  const open = new Map();
  const bars = [];
  for (const event of events) {
    const key = event.call ?? event.turn;
    for (const kind of ENDS[event.kind] ?? []) {
      const bar = open.get(`${kind} ${key}`);
      if (bar) bar.spans[0][1] = event.at - zero;
    }
    const kind = STARTS[event.kind];
    if (!kind) continue;
    const name = names.get(event.call) ?? event.call;
    const label = { "turn.started": `turn ${event.turn}`, "call.intended": `⚙ ${name}`, "approval.requested": `approval of ${name}`, "call.parked": `${name} parked` }[event.kind];
    const go = event.response ? () => (location.hash = `#/r/${encodeURIComponent(event.response)}`) : undefined;
    const bar = { label, kind, spans: [[event.at - zero, end - zero]], detail: "", go };
    open.set(`${event.kind} ${key}`, bar);
    bars.push(bar);
  }
  for (const bar of bars) bar.detail = length(bar.spans[0], "s");
  return { bars, total: end - zero };
}
