/** The panes below the lanes, as tabs: only the one that is seen is drawn. */

import { fill, h } from "../ui/dom.js";

/**
 * @typedef {{ name: string, label: () => import("../ui/dom.js").Child, draw: (panel: HTMLElement) => void,
 *   follows?: boolean }} Panel `follows`: it is drawn anew when the cursor moves
 */
export class Panels {
  current;
  #panels;
  #tabs = h("div", { class: "panel-tabs", role: "tablist", "aria-label": "Views" });
  #body = h("div", { class: "panel-body", role: "tabpanel", tabindex: 0, id: "inspect-panel" });
  #buttons = new Map();

  /** @param {Panel[]} panels @param {HTMLElement[]} actions stand behind the tabs */
  constructor(panels, actions) {
    this.#panels = new Map(panels.map((panel) => [panel.name, panel]));
    this.current = panels[0].name;
    for (const { name } of panels) {
      const tab = h("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "inspect-panel", onclick: () => this.show(name), onkeydown: this.#onKey });
      this.#buttons.set(name, tab);
      this.#tabs.append(tab);
    }
    this.element = h("section", { class: "panels", "aria-label": "Details" }, h("div", { class: "panel-bar" }, this.#tabs, h("div", { class: "panel-actions" }, actions)), this.#body);
  }

  show(name) {
    this.current = name;
    this.#body.scrollTop = 0;
    this.draw();
  }

  /** Draws the labels and the panel that is seen. */
  draw() {
    for (const [name, tab] of this.#buttons) {
      const isCurrent = name === this.current;
      fill(tab, this.#panels.get(name).label());
      tab.setAttribute("aria-selected", String(isCurrent));
      tab.tabIndex = isCurrent ? 0 : -1;
    }
    this.#body.setAttribute("aria-labelledby", `tab-${this.current}`);
    this.#panels.get(this.current).draw(this.#body);
  }

  /** The cursor has moved. */
  move() {
    const panel = this.#panels.get(this.current);
    if (panel.follows) panel.draw(this.#body);
  }

  #onKey = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const names = [...this.#panels.keys()];
    const next = names[(names.indexOf(this.current) + step + names.length) % names.length];
    this.show(next);
    this.#buttons.get(next).focus();
  };
}
