/** Usage and cost: what `GET /v1/usage` says, by day, model, upstream or key. */

import { get, withQuery } from "../api.js";
import { fill, h, newId } from "../ui/dom.js";
import { count, dollars, plural } from "../ui/format.js";
import { dayChart } from "./days.js";

const PERIODS = [["1", "today"], ["7", "7 days"], ["", "30 days"], ["90", "90 days"], ["365", "a year"], ["all", "ever"]];
const DEFAULT_DAYS = 30;
const GROUPINGS = [["", "Model"], ["day", "Day"], ["day,model,upstream", "Day and model"], ["upstream", "Upstream"], ["key", "Key"], ["key,model,upstream", "Key and model"]];
const DEFAULT_GROUPING = "model,upstream";
/** The columns of a grouping. A model is named as requests name it, with its upstream. */
const COLUMNS = [
  { group: "day", label: "Day", cell: (row) => row.day },
  { group: "key", label: "Key", cell: (row) => row.key || soft("no key") },
  { group: "model", label: "Model", cell: (row) => (row.model ? h("span", { class: "mono" }, row.upstream ? `${row.upstream}/${row.model}` : row.model) : [row.upstream, " ", soft("unknown models")]) },
  { group: "upstream", label: "Upstream", cell: (row) => row.upstream },
];
const DAY = 86_400_000;
const soft = (text) => h("span", { class: "soft" }, text);

const FILTERS = [
  { name: "period", label: "Period", options: PERIODS },
  { name: "by", label: "By", options: GROUPINGS },
  { name: "model", label: "Model" },
  { name: "upstream", label: "Upstream" },
  { name: "key", label: "Key" },
];

/** The first day of a period that ends today, in UTC as the ledger counts; null: there is none. */
export function firstDay(period, now = Date.now()) {
  if (period === "all") return null;
  const days = Number(period) || DEFAULT_DAYS;
  return new Date(now - (days - 1) * DAY).toISOString().slice(0, 10);
}

class UsageView {
  title = "Usage";
  #query = {};
  #controls = new Map();
  #content = h("div", { class: "usage-content" });

  constructor(root) {
    const filters = FILTERS.map((filter) => this.#filter(filter));
    const head = h("header", { class: "list-head usage-head" }, h("h1", {}, "Usage"), h("div", { class: "filters" }, filters));
    fill(root, h("div", { class: "page" }, head, this.#content));
  }

  #filter({ name, label, options }) {
    const id = newId("usage");
    const control = options
      ? h("select", { id }, options.map(([value, text]) => h("option", { value }, text)))
      : h("input", { id, type: "search", placeholder: "any", "data-search": name === "model" });
    this.#controls.set(name, control);
    control.addEventListener("change", () => {
      const query = Object.fromEntries([...this.#controls].map(([key, one]) => [key, one.value.trim()]));
      location.hash = withQuery("#/usage", query);
    });
    return h("div", { class: "filter" }, h("label", { for: id }, label), control);
  }

  async update(route) {
    this.#query = Object.fromEntries(route.query);
    for (const [name, control] of this.#controls) control.value = this.#query[name] ?? "";
    const requested = JSON.stringify(this.#query);
    const { period, by, model, upstream, key } = this.#query;
    const groups = by || DEFAULT_GROUPING;
    const query = { start: firstDay(period), model, upstream, key };
    const [rows, days] = await Promise.all([get("/v1/usage", { ...query, group_by: groups }), get("/v1/usage", { ...query, group_by: "day" })]);
    if (requested !== JSON.stringify(this.#query)) return; // the filter has changed meanwhile
    this.#draw(groups.split(","), rows.data, days.data);
  }

  #draw(groups, rows, days) {
    if (!rows.length) {
      const isFiltered = Object.values(this.#query).some(Boolean);
      return fill(this.#content, h("div", { class: "empty" }, isFiltered ? h("p", {}, "Nothing was used that fits these filters.") : emptyNote()));
    }
    const sum = total(days);
    // Of several days: one bar says no more than the sums above it.
    const chart = days.length > 1 ? dayChart(days) : null;
    fill(this.#content, tiles(sum), chart, table(groups, sorted(rows, groups), sum), note());
  }
}

const emptyNote = () => [
  h("h2", {}, "Nothing was used yet"),
  h("p", {}, "Every request to a model appears here with its tokens and, where the price is known, its cost."),
  h("a", { class: "button primary", href: "#/" }, "Start a chat"),
];

/** Days newest first, everything else by what it cost, then by its tokens. */
function sorted(rows, groups) {
  const weight = (row) => [row.cost, tokens(row, "input_tokens") + tokens(row, "output_tokens"), row.requests];
  return rows.toSorted((one, other) => {
    if (groups.includes("day") && one.day !== other.day) return one.day < other.day ? 1 : -1;
    const [a, b] = [weight(one), weight(other)];
    const at = a.findIndex((value, index) => value !== b[index]);
    return at < 0 ? 0 : b[at] - a[at];
  });
}

const tokens = (row, name) => row.reported[name] + row.estimated[name];

/** The sum of rows, in the form of a row. */
export function total(rows) {
  const add = (one, other) =>
    Object.fromEntries(Object.entries(one).map(([name, value]) => [name, typeof value === "object" ? add(value, other[name]) : value + other[name]]));
  const numbers = rows.map(({ requests, failed_requests, unpriced_requests, cost, reported, estimated, none }) => ({ requests, failed_requests, unpriced_requests, cost, reported, estimated, none }));
  return numbers.reduce(add);
}

function tiles(sum) {
  const input = tokens(sum, "input_tokens");
  const output = tokens(sum, "output_tokens");
  return h(
    "dl",
    { class: "tiles" },
    tile("Requests", count(sum.requests), sum.failed_requests ? `${count(sum.failed_requests)} failed` : "none failed"),
    tile("Input tokens", count(input), shareOf(sum, "cached_tokens", "cached")),
    tile("Output tokens", count(output), shareOf(sum, "reasoning_tokens", "reasoning")),
    tile("Cost", dollars(sum.cost), sum.unpriced_requests ? h("span", { class: "amber" }, `⚠ without ${plural(sum.unpriced_requests, "request")} of unknown price`) : "all prices are known"),
  );
}

const tile = (label, value, more) => h("div", {}, h("dt", {}, label), h("dd", {}, h("strong", {}, value), h("span", { class: "more" }, more)));

function shareOf(row, name, word) {
  const number = tokens(row, name);
  return number ? `${count(number)} ${word}` : `none ${word}`;
}

function table(groups, rows, sum) {
  const named = COLUMNS.filter(({ group }) => groups.includes(group) && !(group === "upstream" && groups.includes("model")));
  const head = h(
    "thead",
    {},
    h("tr", {}, named.map(({ label }) => h("th", { scope: "col", rowspan: 2 }, label)), h("th", { scope: "colgroup", colspan: 2 }, "Requests"), h("th", { scope: "colgroup", colspan: 2 }, "Reported tokens"), h("th", { scope: "colgroup", colspan: 2 }, "Estimated tokens"), h("th", { scope: "col", rowspan: 2, class: "number" }, "Cost")),
    h("tr", {}, ["all", "no tokens", "input", "output", "input", "output"].map((label) => h("th", { scope: "col", class: "number" }, label))),
  );
  const names = (row) => named.map(({ label, cell }, index) => h(index ? "td" : "th", { scope: index ? null : "row", class: "name", "data-label": label }, cell(row)));
  const body = rows.map((row) => h("tr", {}, names(row), numbers(row)));
  const foot = rows.length > 1 ? h("tfoot", {}, h("tr", {}, h("th", { scope: "row", colspan: named.length, class: "name" }, "Sum"), numbers(sum))) : null;
  return h("div", { class: "table-frame", tabindex: 0, role: "region", "aria-label": "Usage" }, h("table", { class: "objects usage-table" }, head, h("tbody", {}, body), foot));
}

function numbers(row) {
  const failed = row.failed_requests ? h("span", { class: "more" }, `${count(row.failed_requests)} failed`) : null;
  return [
    cell("Requests", count(row.requests), failed),
    cell("Without tokens", amount(row.none.requests)),
    ...["reported", "estimated"].flatMap((source) => tokenCells(row[source], source)),
    cell("Cost", dollars(row.cost), row.unpriced_requests ? h("span", { class: "more amber", title: "The price of these requests is not known." }, `⚠ + ${count(row.unpriced_requests)}`) : null),
  ];
}

function tokenCells(counts, source) {
  const label = source === "reported" ? "Reported" : "Estimated";
  const more = (number, word) => (number ? h("span", { class: "more" }, `${count(number)} ${word}`) : null);
  return [
    cell(`${label} input`, amount(counts.input_tokens), more(counts.cached_tokens, "cached")),
    cell(`${label} output`, amount(counts.output_tokens), more(counts.reasoning_tokens, "reasoning")),
  ];
}

const amount = (number) => (number ? count(number) : soft("–"));
const cell = (label, ...content) => h("td", { class: "number", "data-label": label }, content);

const note = () =>
  h("p", { class: "note" }, "Days are in UTC. Tokens are ", h("em", {}, "estimated"), " from the length of the texts where the upstream reported none, or was cut off; requests that failed before any content have ", h("em", {}, "no tokens"), ".");

export async function mount(root, route) {
  const view = new UsageView(root);
  await view.update(route);
  return view;
}
