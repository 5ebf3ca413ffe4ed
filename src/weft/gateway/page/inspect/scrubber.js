/** Time travel: a slider over all rows, with how much came where and the findings above it. */

import { button, fill, h, svg } from "../ui/dom.js";
import { count } from "../ui/format.js";

const BUCKETS = 160;
const HEIGHT = 24;
/** The speed of playing where no times are known. */
const ROWS_PER_SECOND = 20;
/** Seconds of silence that are played at most. */
const MAX_PAUSE = 3;

export class Scrubber {
  #trace;
  #number = 0;
  #onMove;
  #timer = 0;
  #density = svg("path", { class: "density" });
  #marks = svg("path", { class: "marks" });
  #here = svg("path", { class: "here" });
  #strip = svg("svg", { class: "strip", viewBox: `0 0 ${BUCKETS} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" }, this.#density, this.#marks, this.#here);
  #range = /** @type {HTMLInputElement} */ (h("input", { type: "range", min: 1, max: 1, value: 1, "aria-label": "Row" }));
  #place = h("output", { class: "place" });
  #live = h("span", { class: "live", hidden: true }, h("span", { "aria-hidden": "true" }, "● "), "live");
  #play = button("▶ Play", () => this.toggle(), { kind: "small", "aria-pressed": "false" });
  #speed = /** @type {HTMLSelectElement} */ (
    h("select", { "aria-label": "Speed" }, h("option", { value: "1" }, "1×"), h("option", { value: "10" }, "10×"), h("option", { value: "100" }, "100×"))
  );

  /** @param {(number: number) => void} onMove */
  constructor(onMove) {
    this.#onMove = onMove;
    this.#range.addEventListener("input", () => {
      this.stop();
      onMove(Number(this.#range.value));
    });
    const step = (by) => () => {
      this.stop();
      onMove(Math.max(1, Math.min(this.#trace.last, this.#number + by)));
    };
    this.element = h(
      "section",
      { class: "scrubber", "aria-label": "Time" },
      h("div", { class: "track" }, this.#strip, this.#range),
      h(
        "div",
        { class: "controls" },
        button("◀", step(-1), { kind: "small", "aria-label": "One row back" }),
        this.#place,
        button("▶", step(1), { kind: "small", "aria-label": "One row on" }),
        this.#play,
        this.#speed,
        this.#live,
      ),
    );
  }

  /** Shows a trace, or how it has grown. */
  show(trace, isLive) {
    this.#trace = trace;
    this.#range.max = String(Math.max(1, trace.last));
    this.#live.hidden = !isLive;
    this.#drawStrip();
    this.#drawPlace();
  }

  move(number) {
    this.#number = number;
    this.#range.value = String(number);
    this.#drawPlace();
  }

  #drawPlace() {
    const last = this.#trace.last;
    const time = this.#trace.timeOf(this.#number - 1);
    const at = time === null ? "" : ` · ${time.toFixed(2)} s`;
    this.#place.textContent = `${count(this.#number)} / ${count(last)}${at}`;
    this.#range.setAttribute("aria-valuetext", `row ${this.#number} of ${last}${at}`);
    const x = last > 1 ? ((this.#number - 1) / (last - 1)) * BUCKETS : 0;
    this.#here.setAttribute("d", `M${x.toFixed(2)} 0V${HEIGHT}`);
  }

  #drawStrip() {
    const { rows, findings } = this.#trace;
    const sums = new Float64Array(BUCKETS);
    const place = (index) => Math.min(BUCKETS - 1, Math.floor((index / Math.max(1, rows.length)) * BUCKETS));
    rows.forEach((row, index) => {
      if (row.data) sums[place(index)] += row.data.length;
    });
    const most = Math.max(1, ...sums);
    const bars = [...sums].map((sum, at) => (sum ? `M${at + 0.5} ${HEIGHT}v-${(2 + (Math.sqrt(sum / most) * (HEIGHT - 8))).toFixed(1)}` : ""));
    this.#density.setAttribute("d", bars.join(""));
    const marked = new Set(findings.map(place));
    this.#marks.setAttribute("d", [...marked].map((at) => `M${at + 0.5} 0l1 7h-2z`).join(""));
  }

  // Playing

  toggle() {
    if (this.#timer) return this.stop();
    if (this.#number >= this.#trace.last) this.#onMove(1);
    fill(this.#play, "❚❚ Pause");
    this.#play.setAttribute("aria-pressed", "true");
    this.#tick();
  }

  stop() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    fill(this.#play, "▶ Play");
    this.#play.setAttribute("aria-pressed", "false");
  }

  /** Goes to the next row after as long as it took, with all that came at the same moment. */
  #tick() {
    const { rows, last } = this.#trace;
    if (this.#number >= last) return this.stop();
    const speed = Number(this.#speed.value);
    let next = this.#number + 1;
    const begin = this.#trace.frameAt(0) >= 0 ? "frame" : "part";
    while (next < last && rows[next].lane !== begin) next++;
    const [from, to] = [this.#trace.timeOf(this.#number - 1), this.#trace.timeOf(next - 1)];
    const seconds = from === null || to === null ? 1 / ROWS_PER_SECOND : Math.min(MAX_PAUSE, Math.max(0, to - from));
    this.#timer = setTimeout(() => {
      this.#onMove(next);
      if (this.#timer) this.#tick();
    }, (1000 * seconds) / speed);
  }
}
