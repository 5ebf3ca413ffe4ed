/** This trace against another one, item by item. How a text was cut into deltas makes no difference. */

import { get, post } from "../api.js";
import { openDialog } from "../ui/dialog.js";
import { button, fill, h, newId } from "../ui/dom.js";
import { ago, clipped, count, plural } from "../ui/format.js";
import { fileBytes } from "./source.js";

const SIGNS = { same: "=", changed: "≠", missing: "−", added: "+" };
const MAX_SHOWN = 600;
const MAX_ROWS = 500;

/** The panel: what is compared stays there, whatever else is drawn. */
export class DiffPanel {
  #source;
  #go;
  #result = h("div", {});
  #choose = button("Compare with…", () => this.#compare());

  /** @param {import("./source.js").Source} source @param {(number: number) => void} go */
  constructor(source, go) {
    this.#source = source;
    this.#go = go;
  }

  draw(panel) {
    fill(panel, h("p", {}, this.#choose), this.#result);
  }

  async #compare() {
    const other = await chooseOther(this.#source.id);
    if (!other) return;
    this.#choose.textContent = "Compare with another…";
    const body = { a: this.#source.side(), b: other.side };
    await fillDiff(this.#result, { body, names: ["This one", clipped(other.name, 30)], what: "item" }, this.#go);
  }

  /** Shows the events that are not as they were sent. */
  showChanges() {
    const body = { a: this.#source.side(), b: { response: this.#source.id, sent: true }, of: "events" };
    return fillDiff(this.#result, { body, names: ["Now", "As it was sent"], what: "event" }, this.#go);
  }
}

/** Asks what to compare with; returns `{ name, side }`, or null. */
async function chooseOther(own) {
  const [idField, fileField] = [newId("other"), newId("file")];
  const list = newId("recent");
  const recent = await get("/v1/responses", { limit: 20 }).catch(() => ({ data: [] }));
  const options = recent.data.filter((row) => row.id !== own).map((row) => h("option", { value: row.id }, `${row.model} · ${ago(row.created_at)}`));
  const id = /** @type {HTMLInputElement} */ (h("input", { id: idField, list, placeholder: "resp_…", autocomplete: "off", autofocus: true }));
  const file = /** @type {HTMLInputElement} */ (h("input", { id: fileField, type: "file" }));
  const problem = h("p", { class: "red", role: "alert" });
  const content = [
    h("label", { for: idField }, "Another response"),
    id,
    h("datalist", { id: list }, options),
    h("label", { for: fileField }, "or a capture"),
    file,
    problem,
  ];
  const value = async () => {
    try {
      const [chosen] = file.files;
      if (chosen) return { name: chosen.name, side: { capture: new TextDecoder().decode(await fileBytes(chosen)) } };
      if (id.value.trim()) return { name: id.value.trim(), side: id.value.trim() };
      problem.textContent = "Name a response, or choose a file.";
    } catch (error) {
      problem.textContent = error.message;
    }
    return undefined;
  };
  return openDialog({ title: "Compare with", content, narrow: true, actions: [{ label: "Cancel", value: null }, { label: "Compare", value, kind: "primary" }] });
}

/** @param {{ body: any, names: [string, string], what: string }} comparison */
async function fillDiff(panel, { body, names, what }, go) {
  fill(panel, h("p", { class: "soft" }, "Comparing…"));
  try {
    const { data } = await post("/v1/trace/diff", body);
    const different = data.filter((row) => row.op !== "same").length;
    const isAll = different === data.length;
    const words = different ? `≠ ${plural(different, what)}${isAll ? "" : ` of ${data.length}`} differ${different === 1 && isAll ? "s" : ""}` : `= all ${plural(data.length, what)} are the same`;
    fill(
      panel,
      h("p", {}, words, h("span", { class: "soft" }, ` · ${names[0]} against ${names[1]}`)),
      h(
        "table",
        { class: "diff" },
        h("thead", {}, h("tr", {}, [h("span", { class: "unseen" }, "Difference"), what === "event" ? "Event" : "Item", ...names, "Time"].map((name) => h("th", { scope: "col" }, name)))),
        h("tbody", {}, data.slice(0, MAX_ROWS).map((row) => diffRow(row, go))),
      ),
      data.length > MAX_ROWS ? h("p", { class: "soft" }, `and ${count(data.length - MAX_ROWS)} more`) : null,
    );
  } catch (problem) {
    fill(panel, h("p", { class: "red", role: "alert" }, problem.message));
  }
}

function diffRow({ op, kind, a, b }, go) {
  const name = a?.name || b?.name;
  const title = [kind, name ? [" ", h("code", {}, clipped(name, 40))] : null];
  const cut = firstDifference(a?.value ?? "", b?.value ?? "");
  return h(
    "tr",
    { class: op },
    h("td", {}, h("span", { class: "op" }, SIGNS[op]), " ", op),
    h("td", {}, a ? button(h("span", {}, title), () => go(a.row), { kind: "link" }) : title),
    h("td", {}, side(a, op, cut)),
    h("td", {}, side(b, op, cut)),
    h("td", {}, timing(a, b)),
  );
}

/** The value of a side, with what differs marked. */
function side(item, op, cut) {
  if (!item) return h("span", { class: "soft" }, "–");
  if (op !== "changed") return h("span", { class: "diff-value" }, clipped(item.value, 120));
  const start = Math.max(0, cut - 40);
  return h("span", { class: "diff-value" }, start ? "…" : "", item.value.slice(start, cut), h("mark", {}, item.value.slice(cut, cut + MAX_SHOWN) || "∅"));
}

function firstDifference(one, other) {
  const most = Math.min(one.length, other.length);
  let at = 0;
  while (at < most && one[at] === other[at]) at++;
  return at;
}

function timing(a, b) {
  const took = (item) => (item && item.start !== null && item.end !== null ? item.end - item.start : null);
  const [one, other] = [took(a), took(b)];
  if (one === null && other === null) return "";
  return [one, other].map((seconds) => (seconds === null ? "–" : `${seconds.toFixed(2)} s`)).join(" → ");
}
