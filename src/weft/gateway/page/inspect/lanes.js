/**
 * The three lanes: what came, the parts that it became, what was emitted. Rows that belong together
 * share a line of one list, so that lanes cannot scroll apart; on a narrow screen one lane is shown.
 */

import { fill, h } from "../ui/dom.js";
import { count as format, plural } from "../ui/format.js";
import "../ui/virtual-list.js";
import { RowFilter } from "./filter.js";
import { HEADS, textOf } from "./gist.js";
import { LANES, layout, runName } from "./layout.js";

const NARROW = matchMedia("(max-width: 720px)");
/** Lines above and below a row that was not in view. */
const CONTEXT = 5;
const NAMES = { frame: "Upstream", part: "Parts", emit: "Emitted" };

export class Lanes {
  lane = "part";
  #trace;
  #cursor = 0;
  #related = new Set();
  #open = new Set();
  #isFolded = true;
  #lines = [];
  #lineOfRow = new Int32Array(0);
  #onSelect;
  #list = /** @type {any} */ (h("virtual-list", { id: "lanes", "aria-label": "Rows of the trace" }));
  #heads = h("div", { class: "lane-heads", role: "tablist", "aria-label": "Lane" });
  #note = h("p", { class: "lane-note", hidden: true });
  #about = { frame: "", part: "", emit: "" };
  #filter = new RowFilter(() => this.draw());
  #found = h("span", { class: "soft", role: "status" });

  /** @param {(number: number) => void} onSelect is called with the row that the user selects */
  constructor(onSelect) {
    this.#onSelect = onSelect;
    this.#list.renderRow = (index) => this.#cells(index);
    this.#list.rowClass = (index) => (this.#lines[index].count > 1 ? "fold" : "");
    this.#list.rowLabel = (index) => this.#label(this.#lines[index]);
    this.#list.addEventListener("select", (event) => this.#select(event.detail.index));
    this.#list.addEventListener("open", (event) => this.toggle(event.detail.index));
    this.#list.addEventListener("click", this.#onClick, { capture: true });
    this.element = h("section", { class: "lanes", "aria-label": "Lanes" }, this.#heads, this.#note, this.#list);
    const field = /** @type {HTMLInputElement} */ (
      h("input", { type: "search", placeholder: "Filter rows", "aria-label": "Filter rows", title: "A text or a regular expression (/)", "data-search": true })
    );
    field.addEventListener("input", () => {
      this.#filter.set(field.value.trim());
      this.draw();
    });
    this.filter = h("span", { class: "row-filter" }, field, this.#found);
    NARROW.addEventListener("change", this.#onNarrow);
    this.#drawHeads();
  }

  close() {
    NARROW.removeEventListener("change", this.#onNarrow);
  }

  #onNarrow = () => {
    this.#drawHeads();
    this.draw();
  };

  /** Shows another trace; nothing of the one before stays but what was folded. */
  show(trace) {
    this.#trace = trace;
    this.#related = new Set();
    this.#cursor = 0;
    this.draw();
  }

  /** What stands in the head of each lane, and why the first may be empty. */
  describe({ frame, emit, note }) {
    this.#about = { frame, part: "", emit };
    this.#note.textContent = note ?? "";
    this.#note.hidden = !note;
    this.#drawHeads();
  }

  /** Lays the rows out anew, after some were added or folded. */
  draw() {
    if (!this.#trace) return;
    const isOpen = (run) => this.#isFolded === this.#open.has(run);
    const only = NARROW.matches ? this.lane : null;
    const matches = this.#filter.isActive ? this.#filter.has : null;
    this.#filter.scan(this.#trace);
    ({ lines: this.#lines, lineOfRow: this.#lineOfRow } = layout(this.#trace, { isOpen, only, matches }));
    this.#found.textContent = matches ? plural(this.#lines.length, "line") : "";
    this.#list.count = this.#lines.length;
    this.#list.refresh();
    if (this.#cursor) this.#reveal();
  }

  /** Selects a row of the trace, and marks what belongs to it. */
  select(number) {
    this.#cursor = number;
    this.#related = this.#trace.related(number - 1);
    this.#reveal();
    this.#list.refresh();
  }

  #reveal() {
    const found = this.#lineOfRow[this.#cursor - 1] ?? -1;
    const index = found >= 0 ? found : this.#nearest();
    const { scrollTop, clientHeight, rowHeight } = this.#list;
    const top = index * rowHeight;
    if (top < scrollTop || top + rowHeight > scrollTop + clientHeight) {
      // A row that was far away is shown with the rows around it.
      this.#list.reveal(Math.min(this.#lines.length - 1, index + CONTEXT));
      this.#list.reveal(Math.max(0, index - CONTEXT));
    }
    this.#list.selected = index;
  }

  /** The line of the last row before the cursor that has one. */
  #nearest() {
    for (let index = this.#cursor - 1; index >= 0; index--) {
      if (this.#lineOfRow[index] >= 0) return this.#lineOfRow[index];
    }
    return -1;
  }

  focus() {
    this.#list.focus();
  }

  /** Whether the list shows its end, and goes on with it. */
  get isAtEnd() {
    return this.#list.isAtEnd;
  }

  // What the user does

  /** Goes up or down by lines. */
  move(step) {
    const index = Math.max(0, Math.min(this.#lines.length - 1, this.#list.selected + step));
    if (this.#lines.length) this.#select(index);
  }

  setLane(lane) {
    this.lane = lane;
    this.#drawHeads();
    if (NARROW.matches) this.draw();
    const line = this.#lines[this.#list.selected];
    if (line && line[lane] >= 0) this.#onSelect(line[lane] + 1);
    else this.#list.refresh();
  }

  moveLane(step) {
    const at = LANES.indexOf(this.lane) + step;
    if (at >= 0 && at < LANES.length) this.setLane(LANES[at]);
  }

  /** Folds or unfolds the run at a line, or at the cursor. */
  toggle(index = this.#list.selected) {
    const line = this.#lines[index];
    if (!line || line.run === null) return;
    let first = index;
    if (line.count === 1) while (this.#lines[first - 1]?.run === line.run) first--;
    const run = runName(this.#lines[first]);
    if (!this.#open.delete(run)) this.#open.add(run);
    this.draw();
  }

  /** Folds all runs, or none. Returns whether they are folded. */
  toggleAll() {
    this.#isFolded = !this.#isFolded;
    this.#open.clear();
    this.draw();
    return this.#isFolded;
  }

  #onClick = (event) => {
    const lane = event.target.closest(".cell")?.dataset.lane;
    if (lane && lane !== this.lane) {
      this.lane = lane;
      this.#drawHeads();
    }
  };

  #select(index) {
    const line = this.#lines[index];
    const lane = line[this.lane] >= 0 ? this.lane : LANES.find((one) => line[one] >= 0);
    this.#onSelect(line[lane] + 1);
  }

  // Drawing

  #drawHeads() {
    const hadFocus = this.#heads.contains(document.activeElement);
    const heads = LANES.map((lane) =>
      h(
        "button",
        { type: "button", role: "tab", class: `lane-head ${lane}`, "aria-selected": String(lane === this.lane), tabindex: lane === this.lane ? 0 : -1, onclick: () => this.setLane(lane), onkeydown: this.#onHeadKey },
        NAMES[lane],
        this.#about[lane] ? h("span", { class: "soft" }, this.#about[lane]) : null,
      ),
    );
    fill(this.#heads, heads);
    if (hadFocus) heads[LANES.indexOf(this.lane)].focus();
  }

  #onHeadKey = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    this.moveLane(step);
  };

  #cells(index) {
    const line = this.#lines[index];
    const lanes = NARROW.matches ? [this.lane] : LANES;
    return lanes.filter((lane) => line[lane] >= 0).map((lane) => this.#cell(line, lane, index));
  }

  #cell(line, lane, at) {
    const index = line[lane];
    const row = this.#trace.rows[index];
    const isFold = line.count > 1;
    const holdsCursor = isFold && this.#lineOfRow[this.#cursor - 1] === at;
    const isHere = holdsCursor ? this.#trace.rows[this.#cursor - 1].lane === lane : index === this.#cursor - 1;
    const isFuture = index >= this.#cursor && this.#cursor > 0;
    const classes = ["cell", row.lane, (holdsCursor || this.#related.has(index)) && "related", isHere && "here", isFuture && "future", row.takeover && "takeover", row.passthrough && "passthrough"];
    return h(
      "span",
      { class: classes.filter(Boolean).join(" "), "data-lane": lane, "data-head": isFold ? foldHead(line, lane, row) : HEADS[row.lane](row) },
      isFold ? this.#foldText(line, lane) : textOf(row),
    );
  }

  #foldText(line, lane) {
    const { rows } = this.#trace;
    if (lane === "frame") {
      const last = line.last.frame >= 0 ? rows[line.last.frame] : null;
      const about = line.part < 0 ? ` ▸ ${format(line.count)} frames without a part` : "";
      return (last && last.t !== null ? `… ${last.t.toFixed(2)} s` : "…") + about;
    }
    if (lane === "emit") return rows[line.emit].event ?? "data";
    const [first, last] = [rows[line.part], rows[line.last.part]];
    const length = last.end - first.end + [...first.part.delta].length;
    return `${first.item} +${format(length)} characters`;
  }

  #label(line) {
    const said = LANES.filter((lane) => line[lane] >= 0).map((lane) => {
      const row = this.#trace.rows[line[lane]];
      const head = line.count > 1 ? foldHead(line, lane, row) : HEADS[row.lane](row);
      return `${NAMES[lane]}: ${head} ${line.count > 1 ? this.#foldText(line, lane) : textOf(row).slice(0, 80)}`;
    });
    return said.join("; ");
  }
}

function foldHead(line, lane, row) {
  if (lane === "frame") return HEADS.frame(row);
  if (lane === "emit") return `${format(line.count)} ×`;
  return `▸ ${format(line.count)} × ${row.part.type}`;
}
