/** Usage by day, as bars. The table says the same: the picture is one image for screen readers. */

import { h, svg } from "../ui/dom.js";
import { count, dollars, plural } from "../ui/format.js";

const HEIGHT = 72;
const WIDTH = 720;
const DAY = 86_400_000;
const MAX_DAYS = 92;

/** Every day from the first to the last, also those without usage; the last ones, if they are many. */
export function everyDay(rows) {
  const byDay = new Map(rows.map((row) => [row.day, row]));
  const days = [...byDay.keys()].sort();
  const found = [];
  for (let at = Date.parse(days[0]); at <= Date.parse(days.at(-1)); at += DAY) {
    const day = new Date(at).toISOString().slice(0, 10);
    found.push({ day, row: byDay.get(day) ?? null });
  }
  return found.slice(-MAX_DAYS);
}

/** Bars of the cost of each day; of its tokens, if nothing has a price. */
export function dayChart(rows) {
  const days = everyDay(rows);
  const isPriced = rows.some((row) => row.cost > 0);
  const value = (row) => (isPriced ? row.cost : row.reported.input_tokens + row.reported.output_tokens + row.estimated.input_tokens + row.estimated.output_tokens);
  const words = (number) => (isPriced ? dollars(number) : plural(number, "token"));
  const highest = Math.max(...rows.map(value)) || 1;
  const step = WIDTH / days.length;
  const bars = days.map(({ day, row }, index) => {
    const height = row ? Math.max(2, (HEIGHT * value(row)) / highest) : 0;
    const about = row ? `${day}: ${words(value(row))}, ${plural(row.requests, "request")}` : `${day}: nothing`;
    // The whole height answers to the pointer, not only the bar.
    const target = svg("rect", { class: "day", x: index * step, y: 0, width: step, height: HEIGHT });
    const bar = svg("rect", { class: "bar-day", x: index * step + step * 0.12, y: HEIGHT - height, width: step * 0.76, height, rx: Math.min(2, step / 4) });
    return svg("g", {}, svg("title", {}, about), target, bar);
  });
  const what = isPriced ? "Cost" : "Tokens";
  const label = `${what} by day, from ${days[0].day} to ${days.at(-1).day}; most on one day: ${words(highest)}`;
  return h(
    "figure",
    { class: "days" },
    h("figcaption", {}, `${what} by day`, h("span", { class: "soft" }, `at most ${words(highest)}`)),
    svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label }, bars),
    h("p", { class: "range", "aria-hidden": "true" }, h("span", {}, days[0].day), h("span", {}, days.at(-1).day)),
  );
}
