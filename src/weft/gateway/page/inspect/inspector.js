/** The inspector: a stream, what it became, and any moment of it. */

import { ApiError, withQuery } from "../api.js";
import { button, fill, h, oncePerFrame } from "../ui/dom.js";
import { announce, connection, download, toast } from "../ui/status.js";
import { saveCase } from "./case.js";
import { fillClients } from "./clients.js";
import { DiffPanel } from "./diff.js";
import { fillFindings } from "./findings.js";
import { Head } from "./head.js";
import { Lanes } from "./lanes.js";
import { Panels } from "./panels.js";
import { Scrubber } from "./scrubber.js";
import { bindShortcuts } from "./shortcuts.js";
import { readTrace, sampleSource, storedResponse } from "./source.js";
import { acceptDrops, droppedSource, showStart, take } from "./start.js";
import { fillRow, fillState } from "./state.js";
import { Trace } from "./trace.js";
import { fillWaterfall } from "./waterfall.js";

/** Milliseconds between two drawings while rows come, and how many times longer than one of them. */
const DRAW_EVERY = 120;
const DRAW_SHARE = 10;
/** Milliseconds without a row after which a trace that has not ended is live. */
const LIVE_AFTER = 600;
const LOG_NOTE = "What the upstream sent was not kept (see store.upstream in the settings): parts are decoded from the events that were sent to the client.";

async function sourceOf([screen, name]) {
  if (screen === "r" && name) return storedResponse(name);
  if (name === "sample") return sampleSource();
  return name === "file" ? droppedSource() : null;
}

export async function mount(root, route) {
  const source = await sourceOf(route.path);
  if (!source) {
    await showStart(root, route.path[1] === "file" ? "The capture is gone: it was only in the memory of this tab." : "");
    return { title: "Inspect" };
  }
  const view = new InspectorView(root, source);
  try {
    await view.start(route.query);
  } catch (problem) {
    view.close();
    if (!source.capture || !(problem instanceof ApiError)) throw problem;
    await showStart(root, problem.message);
    return { title: "Inspect" };
  }
  return view;
}

/** Where a stream that is over is opened: at what was found, or at its end. */
const initialRow = (trace) => (trace.findings.length ? trace.findings[0] + 1 : trace.last);

class InspectorView {
  #source;
  #trace = new Trace();
  #about = { source: "", from: "", as: "", run: null };
  #as = "";
  #cursor = 0;
  #isFollowing = false;
  /** The row to go to once it is there, or 0; the user may go elsewhere before. */
  #place = (_trace) => 0;
  #reading = new AbortController();
  #drawTimer = 0;
  #quietTimer = 0;
  #isLive = false;
  #keys = [];
  #lanes = new Lanes((number) => this.#go(number));
  #scrubber = new Scrubber((number) => this.#go(number));
  #row = h("section", { class: "row-pane", "aria-label": "Selected row", tabindex: 0 });
  #head;
  #foldButton = button("Unfold", () => this.#toggleFolds(), { kind: "quiet small", title: "Show every delta (. for one run)" });
  #panels;
  #follow = oncePerFrame(() => this.#showMoment());

  constructor(root, source) {
    this.#source = source;
    this.title = source.title;
    const go = (number) => this.#go(number);
    const diff = new DiffPanel(source, go);
    const label = (word, count) => () => [word, count() ? h("span", { class: "count" }, count()) : null];
    this.#panels = new Panels(
      [
        { name: "state", label: () => "State", draw: (panel) => fillState(panel, this.#trace, this.#cursor), follows: true },
        { name: "findings", label: label("Findings", () => this.#trace.findings.length), draw: (panel) => fillFindings(panel, this.#trace, go) },
        { name: "waterfall", label: () => "Waterfall", draw: (panel) => fillWaterfall(panel, this.#trace, go, this.#about.run) },
        { name: "clients", label: label("Clients", () => this.#trace.end?.verdicts.length), draw: (panel) => fillClients(panel, this.#trace, go) },
        { name: "diff", label: () => "Diff", draw: (panel) => diff.draw(panel) },
      ],
      [
        button("Save as test…", () => saveCase(this.#source), { kind: "quiet small" }),
        button("Trace ⤓", () => this.#downloadTrace(), { kind: "quiet small", title: "Download the rows, one JSON object a line" }),
      ],
    );
    this.#head = new Head(source, {
      onDialect: (dialect) => this.#setDialect(dialect),
      onChanges: () => {
        this.#panels.show("diff");
        diff.showChanges();
      },
      controls: [this.#foldButton, this.#lanes.filter],
    });
    fill(
      root,
      h("div", { class: "inspector" }, this.#head.element, this.#scrubber.element, this.#lanes.element, h("div", { class: "below" }, this.#row, this.#panels.element)),
    );
    acceptDrops(root, (file) => take(file, {}, toast));
    this.#keys = bindShortcuts({
      source,
      lanes: this.#lanes,
      scrubber: this.#scrubber,
      panels: this.#panels,
      trace: () => this.#trace,
      goNext: (numbers, step) => this.#goNext(numbers, step),
      setDialect: (name) => this.#setDialect(name),
    });
  }

  close() {
    this.#reading.abort();
    clearTimeout(this.#drawTimer);
    clearTimeout(this.#quietTimer);
    this.#scrubber.stop();
    this.#lanes.close();
    for (const unbind of this.#keys) unbind();
    connection("");
  }

  /** Another address: of this trace, or not. */
  update(route) {
    const isSame = this.#source.address === `#/${route.path.map(encodeURIComponent).join("/")}`;
    if (!isSame || (route.path[1] === "file" && droppedSource() !== this.#source)) return false;
    const row = Number(route.query.get("row"));
    if (row && row !== this.#cursor) this.#go(row);
    return true;
  }

  // Reading

  /** Begins to read; returns when there is something to see. */
  async start(query) {
    this.#as = query.get("as") ?? "";
    const wanted = Number(query.get("row")) || 0;
    await this.#read((trace) => (wanted && trace.last >= wanted ? wanted : 0));
  }

  /** Reads the trace. `place` returns the row to go to once it is there. */
  #read(place) {
    this.#reading.abort();
    this.#reading = new AbortController();
    const trace = new Trace();
    this.#trace = trace;
    this.#cursor = 0;
    this.#isFollowing = true;
    this.#place = place;
    this.#head.draw(this.#trace, this.#isLive);
    const { signal } = this.#reading;
    return new Promise((resolve, reject) => {
      let pause = 0;
      const draw = () => {
        this.#drawTimer = 0;
        if (signal.aborted) return;
        const start = performance.now();
        const found = this.#isFollowing ? this.#place(trace) : 0;
        if (found) {
          this.#isFollowing = false;
          this.#cursor = found;
        } else if (this.#isFollowing) this.#cursor = trace.last;
        this.#drawAll();
        pause = Math.max(DRAW_EVERY, DRAW_SHARE * (performance.now() - start));
        resolve(undefined);
      };
      const schedule = () => (this.#drawTimer ||= setTimeout(draw, pause));
      this.#lanes.show(trace);
      readTrace(this.#source, this.#as, trace, {
        onHead: (head) => {
          this.#about = head;
          this.#describe();
          this.#watchQuiet();
        },
        onRow: () => {
          this.#watchQuiet();
          schedule();
        },
        onState: (state, seconds) => connection(state === "waiting" ? `Reconnecting (${seconds} s)` : ""),
        signal,
      }).then(
        () => {
          clearTimeout(this.#drawTimer);
          clearTimeout(this.#quietTimer);
          if (this.#isLive) announce("The response has ended");
          else if (this.#place === place) this.#place = () => place(trace) || initialRow(trace);
          this.#isLive = false;
          trace.isRead = true;
          draw();
        },
        (problem) => {
          if (problem.name === "AbortError") return;
          clearTimeout(this.#quietTimer);
          if (trace.last) toast(problem.message); // what came so far can still be read
          reject(problem);
        },
      );
    });
  }

  /** A trace that has not ended, and of which nothing comes for a moment, is live. */
  #watchQuiet() {
    clearTimeout(this.#quietTimer);
    if (this.#source.capture) return; // a busy server is quiet, too
    this.#quietTimer = setTimeout(() => {
      this.#isLive = true;
      this.#drawAll();
    }, LIVE_AFTER);
  }

  #describe() {
    const { source, from, as, run } = this.#about;
    const isLog = source === "log";
    this.#lanes.describe({ frame: isLog ? "not kept" : from, emit: as, note: isLog ? LOG_NOTE : null });
    this.#head.mark(as);
    this.#head.showRun(run);
  }

  /** Reads the trace for another dialect; the part that is selected stays selected. */
  async #setDialect(as) {
    if (as === this.#about.as) return;
    this.#as = as;
    const part = this.#partAtCursor();
    try {
      await this.#read((trace) => (part < 0 ? 0 : trace.partAt(part) + 1));
    } catch (problem) {
      toast(problem.message);
    }
  }

  /** The number of the part of the selected row, or of the last one before it. */
  #partAtCursor() {
    for (let index = this.#cursor - 1; index >= 0; index--) {
      const row = this.#trace.rows[index];
      if (row.lane === "part") return row.n;
      if (row.lane !== "end" && row.part != null) return row.part;
    }
    return -1;
  }

  // Drawing

  #drawAll() {
    this.#scrubber.show(this.#trace, this.#isLive);
    this.#lanes.draw();
    this.#head.draw(this.#trace, this.#isLive);
    this.#panels.draw();
    this.#showMoment();
  }

  /** Draws what depends on the cursor. */
  #showMoment() {
    if (!this.#cursor) return;
    this.#lanes.select(this.#cursor);
    this.#scrubber.move(this.#cursor);
    fillRow(this.#row, this.#trace, this.#cursor);
    this.#panels.move();
  }

  // What the user does

  #go(number) {
    const row = Math.max(1, Math.min(this.#trace.last, number));
    if (!this.#trace.last) return;
    this.#cursor = row;
    // At the end of a live trace, the selection follows new rows.
    this.#isFollowing = row === this.#trace.last;
    this.#place = () => 0;
    const query = { as: this.#as, row };
    history.replaceState(null, "", withQuery(this.#source.address, query));
    this.#follow();
  }

  #toggleFolds() {
    this.#foldButton.textContent = this.#lanes.toggleAll() ? "Unfold" : "Fold";
  }

  #downloadTrace() {
    const lines = this.#trace.rows.map((row) => `${JSON.stringify(row)}\n`);
    download(`${this.#source.title.replace(/[^\w.-]/g, "_")}.trace.ndjson`, lines.join(""), "application/x-ndjson");
  }

  /** Goes to the next of these rows, or to the last one before the cursor. */
  #goNext(numbers, step) {
    const next = step > 0 ? numbers.find((one) => one > this.#cursor) : numbers.findLast((one) => one < this.#cursor);
    if (next) this.#go(next);
  }
}
