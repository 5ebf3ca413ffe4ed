/** One run of an agent: its state, its log, and what somebody has to decide. */

import { get, post } from "../api.js";
import { askText } from "../ui/dialog.js";
import { button, fill, h } from "../ui/dom.js";
import { count, dollars, duration, exactTime } from "../ui/format.js";
import { valueView } from "../ui/json-view.js";
import { readRunEvents, runBars, waterfall } from "../inspect/waterfall.js";
import { markdownElement } from "../ui/markdown.js";
import { announce, toast } from "../ui/status.js";
import { approvalCard, outputCard, parkedCard } from "./waiting.js";
import { status } from "./table.js";

const POLL = 1500;

export class RunView {
  #id;
  #path;
  #timer = 0;
  #seen = "";
  #waitsFor = "";
  #events = [];
  #isClosed = false;
  #head = h("header", { class: "list-head" });
  #waiting = h("section", { class: "waits", "aria-label": "Waits for you" });
  #result = h("section", { "aria-label": "Result" });
  #facts = h("dl", { class: "facts-list" });
  #waterfall = h("section", { "aria-label": "Waterfall" });
  #log = h("ol", { class: "log" });

  constructor(root, id) {
    this.#id = id;
    this.#path = `/v1/runs/${encodeURIComponent(id)}`;
    this.title = "Run";
    const back = h("p", {}, h("a", { href: "#/runs" }, "← Runs"));
    fill(root, h("div", { class: "page run" }, back, this.#head, this.#waiting, this.#result, this.#facts, this.#waterfall, h("h2", {}, "Log"), this.#log));
    document.addEventListener("visibilitychange", this.#poll);
  }

  async start() {
    await this.#read();
    this.#schedule();
  }

  close() {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    document.removeEventListener("visibilitychange", this.#poll);
  }

  #schedule() {
    clearTimeout(this.#timer);
    if (!this.#isClosed && document.visibilityState !== "hidden") this.#timer = setTimeout(this.#poll, POLL);
  }

  #poll = async () => {
    await this.#read().catch(() => {});
    this.#schedule();
  };

  async #read() {
    const run = await get(this.#path);
    // What a person types into must not be drawn anew for nothing.
    const state = JSON.stringify([run.status, run.events]);
    if (state === this.#seen) return;
    const found = await readRunEvents(this.#id, this.#events.at(-1)?.seq);
    const last = this.#events.at(-1)?.seq ?? 0; // another read may have ended meanwhile
    this.#events.push(...found.filter((event) => event.seq > last));
    this.#seen = state;
    this.title = `Run of ${run.agent}`;
    this.#draw(run);
  }

  #draw(run) {
    const isOver = run.ended_at !== null;
    fill(
      this.#head,
      h("h1", {}, run.agent, " ", status(run.status)),
      h("div", { class: "filters" }, isOver ? null : button("Cancel…", () => this.#cancel(), { kind: "danger" })),
    );
    this.#drawWaiting(run.waiting);
    fill(
      this.#result,
      run.error ? h("div", { class: "error-card", role: "alert" }, h("p", { class: "kind" }, `✗ ${run.error.code}`), h("p", {}, run.error.message)) : null,
      run.output ? [h("h2", {}, "Output"), markdownElement(run.output)] : null,
    );
    fill(this.#facts, facts(run).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
    const { bars, total } = runBars(this.#events);
    fill(this.#waterfall, bars.length ? [h("h2", {}, "Waterfall"), waterfall(bars, total, "s")] : null);
    fill(this.#log, this.#events.map(eventRow));
  }

  #drawWaiting(waiting) {
    // An event elsewhere in the run must not empty the field that somebody types into.
    const state = JSON.stringify(waiting ?? null);
    if (state === this.#waitsFor) return;
    this.#waitsFor = state;
    const act = (path, body, message) => this.#act(path, body, message);
    const cards = [
      ...(waiting?.approvals ?? []).map((one) => approvalCard(one, act)),
      ...(waiting?.outputs?.length ? [outputCard(waiting.outputs, act)] : []),
      ...(waiting?.parked ?? []).map((one) => parkedCard(one, act)),
    ];
    this.#waiting.hidden = !cards.length;
    fill(this.#waiting, cards.length ? h("h2", {}, "Waits for you") : null, cards);
  }

  async #act(path, body, message) {
    try {
      await post(`${this.#path}/${path}`, body);
      announce(message);
    } catch (problem) {
      toast(problem.message); // somebody else may have decided it
    }
    this.#seen = "";
    this.#waitsFor = "";
    await this.#read();
    this.#schedule();
  }

  async #cancel() {
    const reason = await askText({ title: "Cancel this run", label: "Reason (optional)", action: "Cancel the run" });
    if (reason !== null) await this.#act("cancel", { reason }, "Cancelled");
  }
}

function facts(run) {
  const { usage } = run;
  const responses = run.responses.map((id, index) => [index ? ", " : "", h("a", { href: `#/r/${encodeURIComponent(id)}` }, `turn ${index + 1}`)]);
  return [
    ["Run", h("code", {}, run.id)],
    ["Started", exactTime(run.created_at)],
    run.ended_at === null ? null : ["Took", duration(run.ended_at - run.created_at)],
    responses.length ? ["Responses", responses] : null,
    usage ? ["Tokens", `${count(usage.input_tokens ?? 0)} in · ${count(usage.output_tokens ?? 0)} out`] : null,
    run.cost ? ["Cost", dollars(run.cost)] : null,
    run.forked_from ? ["Forked from", h("code", {}, JSON.stringify(run.forked_from))] : null,
  ].filter(Boolean);
}

/** An event: its kind and what matters of it, the rest in a fold. */
function eventRow({ run, seq, at, kind, ...rest }) {
  const about = rest.tool ?? rest.name ?? rest.call ?? "";
  const summary = h("summary", {}, h("span", { class: "number" }, seq), h("span", { class: "mono" }, kind), h("span", { class: "soft" }, typeof about === "string" ? about : ""), h("time", { class: "soft" }, exactTime(at)));
  const details = h("details", {}, summary);
  details.addEventListener("toggle", () => {
    if (details.childElementCount === 1) details.append(valueView(rest, { open: 2 }));
  }, { once: true });
  return h("li", {}, details);
}
