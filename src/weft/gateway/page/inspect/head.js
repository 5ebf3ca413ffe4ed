/** What is inspected, whether it is what was sent, and the dialect that it is shown in. */

import { button, fill, h } from "../ui/dom.js";
import { plural } from "../ui/format.js";
import { DIALECTS } from "./source.js";

export class Head {
  #source;
  #onDialect;
  #dialects = h("div", { class: "dialects", role: "group", "aria-label": "Emitted as" });
  #sameness = h("p", { class: "sameness", role: "status" });
  #changes;
  #run = h("span", {});

  /**
   * @param {import("./source.js").Source} source
   * @param {{ onDialect: (dialect: string) => void, onChanges: () => void, controls: HTMLElement[] }} options
   *   `onChanges` shows what is not as it was sent
   */
  constructor(source, { onDialect, onChanges, controls }) {
    this.#source = source;
    this.#onDialect = onDialect;
    this.#changes = button("Show them", onChanges, { kind: "link", hidden: true });
    const title = h("h1", { class: "mono", title: source.title }, source.title);
    const as = h("div", { class: "as" }, h("span", { class: "soft", "aria-hidden": "true" }, "as"), this.#dialects, controls);
    this.element = h("header", { class: "inspect-head" }, h("div", { class: "inspect-title" }, title, this.#sameness, this.#changes, this.#run), as);
  }

  /** Marks the dialect of the emitted events. */
  mark(as) {
    fill(
      this.#dialects,
      DIALECTS.map(([name, label], index) => button(label, () => this.#onDialect(name), { kind: "small", "aria-pressed": String(name === as), title: `${name} (${index + 1})` })),
    );
  }

  /** Leads to the run of an agent that the response is of. */
  showRun(id) {
    fill(this.#run, id ? h("a", { href: `#/runs/${encodeURIComponent(id)}` }, "Run of an agent") : null);
  }

  /** Says whether the trace is that of what was sent. */
  draw(trace, isLive) {
    const end = trace.isRead ? trace.end : null;
    const [kind, text] = this.#verdict(end, isLive);
    this.#sameness.className = `sameness ${kind}`;
    if (this.#sameness.textContent !== text) this.#sameness.textContent = text;
    this.#changes.hidden = !end?.differ;
  }

  #verdict(end, isLive) {
    if (!end) return ["soft", isLive ? "running" : "reading…"];
    if (!this.#source.id) return ["soft", "a capture; nothing of it is stored"];
    if (end.differ === null) return ["soft", "a rendering that was not sent"];
    if (end.differ) return ["amber", `⚠ Weft changed since: ${plural(end.differ, "event")} differ${end.differ === 1 ? "s" : ""} from what was sent`];
    return ["good", "✓ identical to what was sent"];
  }
}
