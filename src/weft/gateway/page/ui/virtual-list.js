/**
 * A list of any length with rows of one height: only the visible ones are in the document.
 *
 * It is a listbox for screen readers, and has one tab stop: arrows, page keys, Home and End move the
 * selection. Lists of more than PAGE rows are cut into pages, because browsers limit the height of
 * an element.
 */

import { h, oncePerFrame, pressOf } from "./dom.js";

export const PAGE = 500_000;
const OVERSCAN = 4;

/** The rows to draw, from `first` up to but not including `last`. */
export function visibleSlice(scrollTop, height, rowHeight, count, overscan = OVERSCAN) {
  const first = Math.max(0, Math.floor(scrollTop / rowHeight) - overscan);
  const last = Math.min(count, Math.ceil((scrollTop + height) / rowHeight) + overscan);
  return { first: Math.min(first, last), last };
}

/**
 * Fires `select` with `detail: { index }` when the user selects a row, and `open` on Enter or a
 * double click.
 */
export class VirtualList extends HTMLElement {
  rowHeight = 20;
  /** @type {(index: number) => Node | Node[]} what is in a row */
  renderRow = (index) => document.createTextNode(String(index));
  /** @type {(index: number) => string} classes of a row */
  rowClass = () => "";
  /** @type {((index: number) => string) | null} a name for a row, where its content says too little */
  rowLabel = null;
  #count = 0;
  #selected = -1;
  #base = 0;
  #isStale = false;
  /** @type {Map<number, HTMLElement>} */
  #rows = new Map();
  #spacer = h("div", { class: "spacer", role: "presentation" });
  #pager = h("div", { class: "pager", role: "presentation", hidden: true });
  #draw = oncePerFrame(() => this.#update());
  #isPressed = pressOf(this, () => this.#draw());
  #resized = new ResizeObserver(() => this.#draw());

  connectedCallback() {
    this.setAttribute("role", "listbox");
    if (!this.hasAttribute("tabindex")) this.tabIndex = 0;
    this.replaceChildren(this.#pager, this.#spacer);
    this.addEventListener("scroll", this.#draw, { passive: true });
    this.addEventListener("click", this.#onClick);
    this.addEventListener("dblclick", this.#onOpen);
    this.addEventListener("keydown", this.#onKey);
    this.#resized.observe(this);
    this.#draw();
  }

  disconnectedCallback() {
    this.#resized.disconnect();
  }

  get count() {
    return this.#count;
  }

  /** Rows that were drawn stay as they are: call `refresh` if they changed. */
  set count(count) {
    this.#count = count;
    if (this.#base >= count) this.#base = 0;
    this.#draw();
  }

  get selected() {
    return this.#selected;
  }

  /** Selects a row and scrolls to it, without an event. */
  set selected(index) {
    this.#selected = index;
    if (index >= 0) this.reveal(index);
    this.#draw();
  }

  /** Whether the last row is visible: then a list that grows should follow. */
  get isAtEnd() {
    return this.scrollTop + this.clientHeight >= this.scrollHeight - this.rowHeight;
  }

  /** Draws all visible rows anew; while a row is pressed, when it is released. */
  refresh() {
    this.#isStale = true;
    this.#draw();
  }

  /** Scrolls as little as needed to show a row. */
  reveal(index) {
    this.#base = Math.floor(index / PAGE) * PAGE;
    this.#size();
    const top = (index - this.#base) * this.rowHeight;
    const bottom = top + this.rowHeight - this.clientHeight;
    if (this.scrollTop > top) this.scrollTop = top;
    else if (this.scrollTop < bottom) this.scrollTop = bottom;
    this.#draw();
  }

  scrollToEnd() {
    if (this.#count) this.reveal(this.#count - 1);
  }

  #size() {
    const rows = Math.min(PAGE, this.#count - this.#base);
    this.#spacer.style.height = `${rows * this.rowHeight}px`;
    this.#pager.hidden = this.#count <= PAGE;
    if (!this.#pager.hidden) {
      const last = this.#base + rows;
      this.#pager.textContent = `rows ${this.#base + 1}–${last} of ${this.#count}`;
    }
  }

  #update() {
    if (!this.isConnected) return;
    if (this.#isStale && !this.#isPressed()) {
      this.#isStale = false;
      for (const row of this.#rows.values()) row.remove();
      this.#rows.clear();
    }
    this.#size();
    const here = Math.min(PAGE, this.#count - this.#base);
    const { first, last } = visibleSlice(this.scrollTop, this.clientHeight, this.rowHeight, here);
    const [from, to] = [first + this.#base, last + this.#base];
    for (const [index, row] of this.#rows) {
      if (index < from || index >= to) {
        row.remove();
        this.#rows.delete(index);
      }
    }
    for (let index = from; index < to; index++) {
      const row = this.#rows.get(index) ?? this.#add(index);
      row.setAttribute("aria-selected", String(index === this.#selected));
      row.setAttribute("aria-setsize", String(this.#count));
    }
    const active = this.#rows.get(this.#selected);
    if (active) this.setAttribute("aria-activedescendant", active.id);
    else this.removeAttribute("aria-activedescendant");
  }

  #add(index) {
    const row = h(
      "div",
      {
        role: "option",
        class: `row ${this.rowClass(index)}`,
        id: `${this.id || "list"}-row-${index}`,
        "aria-posinset": index + 1,
        "aria-label": this.rowLabel?.(index),
        "data-index": index,
      },
      this.renderRow(index),
    );
    row.style.height = `${this.rowHeight}px`;
    row.style.transform = `translateY(${(index - this.#base) * this.rowHeight}px)`;
    this.#spacer.append(row);
    this.#rows.set(index, row);
    return row;
  }

  #pick(index) {
    if (!this.#count) return;
    this.selected = Math.max(0, Math.min(this.#count - 1, index));
    this.dispatchEvent(new CustomEvent("select", { detail: { index: this.selected } }));
  }

  #onClick = (event) => {
    // A link or button in a row does its own work.
    if (event.target.closest("a, button")) return;
    const index = this.#indexAt(event);
    if (index >= 0) this.#pick(index);
  };

  /** The row of a click, or -1. If it was drawn anew while the button was down, the click is not on
   * any element of it. */
  #indexAt(event) {
    const row = event.target.closest("[data-index]");
    if (row) return Number(row.dataset.index);
    const { top, height } = this.#spacer.getBoundingClientRect();
    const below = event.clientY - top;
    return below >= 0 && below < height ? this.#base + Math.floor(below / this.rowHeight) : -1;
  }

  #onOpen = () => {
    if (this.#selected >= 0) {
      this.dispatchEvent(new CustomEvent("open", { detail: { index: this.#selected } }));
    }
  };

  #onKey = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.clientHeight / this.rowHeight) - 1);
    const moves = {
      ArrowDown: this.#selected + 1,
      ArrowUp: this.#selected - 1,
      PageDown: this.#selected + page,
      PageUp: this.#selected - page,
      Home: 0,
      End: this.#count - 1,
    };
    if (event.key === "Enter") this.#onOpen();
    else if (event.key in moves) this.#pick(moves[event.key]);
    else return;
    event.preventDefault();
  };
}

customElements.define("virtual-list", VirtualList);
