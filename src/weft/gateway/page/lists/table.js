/** A list of objects as a table: filters that are part of the address, pages, polling. */

import { get, withQuery } from "../api.js";
import { button, fill, find, h, newId, refill } from "../ui/dom.js";

const POLL = 4000;
const PAGE = 50;

/**
 * @typedef {{ name: string, label: string, options?: [string, string][] }} Filter a list of values with
 *   their labels, or a text
 * @typedef {{ label: string, cell: (row: any) => any, class?: string }} Column
 */
export class ObjectTable {
  #spec;
  #query = {};
  #rows = [];
  #hasMore = false;
  /** How many requests for the next page are under way. */
  #paging = 0;
  #timer = 0;
  #isClosed = false;
  #body = h("tbody", {});
  #empty = h("div", { class: "empty", hidden: true });
  #more = button("Show more", () => this.#readMore(), { hidden: true });
  #controls = new Map();

  /** @param {{ title: string, path: string, address: string, filters: Filter[], columns: Column[], empty: () => any }} spec */
  constructor(root, spec) {
    this.#spec = spec;
    this.title = spec.title;
    const filters = spec.filters.map((filter) => this.#filter(filter));
    const head = h("tr", {}, spec.columns.map((column) => h("th", { scope: "col", class: column.class }, column.label)));
    const table = h("table", { class: "objects" }, h("thead", {}, head), this.#body);
    fill(root, h("div", { class: "page" }, h("header", { class: "list-head" }, h("h1", {}, spec.title), h("div", { class: "filters" }, filters)), h("div", { class: "table-frame", tabindex: 0, role: "region", "aria-label": spec.title }, table), this.#empty, this.#more));
    document.addEventListener("visibilitychange", this.#poll);
  }

  close() {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    document.removeEventListener("visibilitychange", this.#poll);
  }

  #filter({ name, label, options }) {
    const id = newId("filter");
    const control = options
      ? h("select", { id }, options.map(([value, text]) => h("option", { value }, text)))
      : h("input", { id, type: "search", placeholder: "any", "data-search": true });
    this.#controls.set(name, control);
    control.addEventListener("change", () => {
      const query = Object.fromEntries([...this.#controls].map(([key, one]) => [key, one.value.trim()]));
      location.hash = withQuery(this.#spec.address, { ...this.#query, ...query });
    });
    return h("div", { class: "filter" }, h("label", { for: id }, label), control);
  }

  /** Shows what an address asks for. */
  async update(route) {
    this.#query = Object.fromEntries(route.query);
    for (const [name, control] of this.#controls) control.value = this.#query[name] ?? "";
    await this.#read();
    this.#schedule();
  }

  #poll = async () => {
    clearTimeout(this.#timer);
    if (document.visibilityState === "hidden") return;
    this.#schedule();
    if (!this.#hasPagedOn) await this.#read({ isPoll: true }).catch(() => {});
  };

  /** A reader who has paged on looks at older rows; new ones above would move them away. */
  get #hasPagedOn() {
    return this.#paging > 0 || this.#rows.length > PAGE;
  }

  #schedule() {
    clearTimeout(this.#timer);
    if (!this.#isClosed) this.#timer = setTimeout(this.#poll, POLL);
  }

  async #read({ isPoll = false } = {}) {
    const query = JSON.stringify(this.#query);
    const page = await get(this.#spec.path, { limit: PAGE, ...this.#query });
    if (query !== JSON.stringify(this.#query)) return; // the filter has changed meanwhile
    if (isPoll && this.#hasPagedOn) return;
    this.#rows = page.data;
    this.#hasMore = page.has_more;
    this.#draw();
  }

  async #readMore() {
    const rows = this.#rows;
    const after = rows.at(-1).id;
    this.#paging++;
    const page = await get(this.#spec.path, { limit: PAGE, ...this.#query, after }).finally(() => this.#paging--);
    // Another filter has rows of its own, and a second click may have been faster.
    if (this.#rows !== rows || rows.at(-1).id !== after) return;
    rows.push(...page.data);
    this.#hasMore = page.has_more;
    this.#draw();
  }

  #draw() {
    const focused = find("tr:focus-within", this.#body)?.dataset.id;
    refill(this.#body, this.#rows.map((row) => h("tr", { "data-id": row.id, "data-status": row.status }, this.#spec.columns.map((column) => h("td", { class: column.class, "data-label": column.label }, column.cell(row))))));
    if (focused) find(`tr[data-id="${CSS.escape(focused)}"] a`, this.#body)?.focus();
    const isFiltered = Object.values(this.#query).some(Boolean);
    this.#empty.hidden = this.#rows.length > 0;
    this.#body.closest("table").hidden = !this.#rows.length;
    if (!this.#rows.length) fill(this.#empty, isFiltered ? h("p", {}, "Nothing fits these filters.") : this.#spec.empty());
    this.#more.hidden = !this.#hasMore;
  }
}

const SIGNS = {
  completed: ["✓", "completed"],
  finished: ["✓", "finished"],
  failed: ["✗", "failed"],
  cancelled: ["■", "cancelled"],
  incomplete: ["●", "incomplete"],
  waiting: ["●", "waiting"],
  queued: ["…", "queued"],
  in_progress: ["…", "running"],
  running: ["…", "running"],
};

/** A status as a sign and a word. */
export function status(name) {
  const [sign, word] = SIGNS[name] ?? ["", name];
  return h("span", { class: `status ${name}` }, h("span", { "aria-hidden": "true" }, sign), ` ${word}`);
}
