/**
 * The rows of a trace, and what can be asked of them: what became of a row, and how things stood at
 * any row. Texts are never joined here: a moment is the finished text, cut where the server says.
 */

import { gist } from "./gist.js";

const KINDS = {
  "text-start": "text",
  "text-delta": "text",
  "text-end": "text",
  "reasoning-start": "reasoning",
  "reasoning-delta": "reasoning",
  "reasoning-end": "reasoning",
  "tool-params-start": "call",
  "tool-params-delta": "call",
  "tool-params-end": "call",
  "tool-call": "call",
};
const CLOSING = new Set(["text-end", "reasoning-end", "tool-call"]);
const FACTS = new Set(["response-metadata", "tool-result", "tool-approval-request", "error", "finish"]);

/** Frames that are looked through for the one that a forwarded event was. */
const SEARCHED_FRAMES = 16;

export const isDelta = (part) => part.type.endsWith("-delta");
const keyOf = (stream, kind, id) => `${stream} ${kind} ${id}`;

/** A text, reasoning or call: where it changes, and how long it is then. */
class Item {
  name = "";
  invalid = null;
  /** The row that ends it. */
  closed = Infinity;
  /** @type {number[]} numbers of rows */
  rows = [];
  /** @type {number[]} the length after each of them */
  ends = [];
  lastDelta = "";

  constructor(key, kind, id, stream) {
    Object.assign(this, { key, kind, id, stream });
  }

  add(row) {
    const { part } = row;
    this.rows.push(row.row);
    this.ends.push(row.end);
    if (part.name) this.name = part.name;
    if (part.invalid) this.invalid = part.invalid;
    if (CLOSING.has(part.type)) this.closed = row.row;
    if (isDelta(part)) this.lastDelta = part.delta;
  }
}

export class Trace {
  /** @type {any[]} row number n is at n - 1 */
  rows = [];
  /** @type {number[]} indexes of findings */
  findings = [];
  /** @type {any[]} the end of each response of a capture */
  ends = [];
  /** @type {Map<string, Item>} in the order in which they begin */
  items = new Map();
  /** Rows of parts that say something about the response as a whole. */
  facts = [];
  keepalives = [];
  /** Whether all of it is here. A capture of several responses has several ends. */
  isRead = false;
  #frames = new Map();
  #parts = new Map();
  #partsOf = new Map();
  #emitsOf = new Map();
  #findingsOf = new Map();
  #alone = new Set();
  #texts = new Map();
  /** Frames by number that may yet be forwarded, and the first of them. */
  #unsent = [];
  #firstUnsent = 0;
  #forwardedOf = new Map();
  #originOf = new Map();

  get isOver() {
    return this.ends.length > 0;
  }

  get last() {
    return this.rows.length;
  }

  /** The end row with the verdicts of clients. */
  get end() {
    return this.ends.at(-1) ?? null;
  }

  /** Adds a row; one that is here already is left out, so that a connection may be opened again. */
  add(row) {
    if (row.row <= this.rows.length) return;
    const index = this.rows.push(row) - 1;
    ADD[row.lane]?.(this, row, index);
  }

  static #push(map, key, index) {
    const found = map.get(key);
    if (found) found.push(index);
    else map.set(key, [index]);
  }

  addFrame(row, index) {
    this.#frames.set(row.n, index);
    this.#unsent.push(index);
  }

  addPart(row, index) {
    this.#parts.set(row.n, index);
    if (row.frame !== null) Trace.#push(this.#partsOf, row.frame, index);
    const kind = KINDS[row.part.type];
    if (kind && row.item !== null) {
      const stream = row.stream ?? 0;
      const key = keyOf(stream, kind, row.item);
      if (!this.items.has(key)) this.items.set(key, new Item(key, kind, row.item, stream));
      this.items.get(key).add(row);
    } else if (FACTS.has(row.part.type)) this.facts.push(row);
  }

  addFinding(row, index) {
    this.findings.push(index);
    const owner = this.ownerOf(row);
    if (owner >= 0) Trace.#push(this.#findingsOf, owner, index);
    else this.#alone.add(index);
  }

  addEmit(row, index) {
    const origin = row.passthrough ? this.#origin(row) : -1;
    if (origin >= 0) {
      this.#forwardedOf.set(origin, index);
      this.#originOf.set(index, origin);
    } else if (this.partAt(row.part) >= 0) Trace.#push(this.#emitsOf, row.part, index);
    else {
      this.#alone.add(index);
      if (row.part === null) this.keepalives.push(row);
    }
  }

  /**
   * The frame that an event was. The server links it to the first part of all frames that were read
   * at once. Some frames are held back for a while, others are left out, and the id may differ.
   */
  #origin(event) {
    const end = Math.min(this.#unsent.length, this.#firstUnsent + SEARCHED_FRAMES);
    let words = null;
    for (let at = this.#firstUnsent; at < end; at++) {
      const { data } = this.rows[this.#unsent[at]];
      if (data !== event.data && gist(data) !== (words ??= gist(event.data))) continue;
      this.#firstUnsent = at + 1;
      return this.#unsent[at];
    }
    return -1;
  }

  addEnd(row) {
    this.ends.push(row);
    const stream = row.stream ?? 0;
    for (const { item, kind, text } of row.items) this.#texts.set(keyOf(stream, kind, item), text);
  }

  // Links: all of these are indexes; -1 is nothing.

  frameAt = (n) => this.#frames.get(n ?? -1) ?? -1;
  partAt = (n) => this.#parts.get(n ?? -1) ?? -1;
  partsOf = (frame) => this.#partsOf.get(frame) ?? [];
  emitsOf = (part) => this.#emitsOf.get(part) ?? [];
  /** The event that a frame was forwarded as. */
  forwardedOf = (frame) => this.#forwardedOf.get(frame) ?? -1;
  /** Whether a finding or an event comes from no part and no frame. */
  isAlone = (index) => this.#alone.has(index);
  findingsOf = (index) => this.#findingsOf.get(index) ?? [];

  /** The part, or else the frame, that a finding stands at. */
  ownerOf(finding) {
    const part = this.partAt(finding.part);
    return part >= 0 ? part : this.frameAt(finding.frame);
  }

  /** The frame that a row comes from. */
  frameOf(index) {
    const row = this.rows[index];
    if (!row) return -1;
    if (row.lane === "frame") return index;
    if (row.lane === "emit") return this.#originOf.get(index) ?? this.frameOf(this.partAt(row.part));
    return this.frameAt(row.frame);
  }

  /** The cause and the effects of a row, and itself. @returns {Set<number>} */
  related(index) {
    const found = new Set();
    const row = this.rows[index];
    if (!row || row.lane === "end") return found;
    found.add(index);
    const addPart = (part) => {
      found.add(part);
      for (const one of this.emitsOf(this.rows[part].n)) found.add(one);
      for (const one of this.findingsOf(part)) found.add(one);
    };
    const frame = this.frameOf(index);
    if (frame >= 0) found.add(frame);
    if (this.#forwardedOf.has(frame)) found.add(this.#forwardedOf.get(frame));
    if (row.lane === "frame") {
      this.partsOf(row.n).forEach(addPart);
      for (const one of this.findingsOf(index)) found.add(one);
    } else if (this.#originOf.has(index)) this.partsOf(this.rows[frame].n).forEach(addPart);
    else if (row.lane === "part") addPart(index);
    else {
      const part = this.partAt(row.part);
      if (part >= 0) found.add(part);
    }
    return found;
  }

  /** When a row came about, in seconds after the request; null if that is not known. */
  timeOf(index) {
    const frame = this.frameOf(index);
    return frame < 0 ? null : this.rows[frame].t;
  }

  // Moments

  /** How things stood at a row: the items so far, and what was known of the response. */
  stateAt(number) {
    const items = [];
    for (const item of this.items.values()) {
      const at = lastAtOrBefore(item.rows, number);
      if (at < 0) continue;
      const length = item.ends[at] ?? 0;
      const whole = this.#texts.get(item.key);
      items.push({
        item,
        length,
        text: whole === undefined ? null : cut(whole, length),
        isOpen: item.closed > number,
      });
    }
    return { items, facts: this.facts.filter((row) => row.row <= number) };
  }
}

const ADD = {
  frame: (trace, row, index) => trace.addFrame(row, index),
  part: (trace, row, index) => trace.addPart(row, index),
  finding: (trace, row, index) => trace.addFinding(row, index),
  emit: (trace, row, index) => trace.addEmit(row, index),
  end: (trace, row) => trace.addEnd(row),
};

/** The index of the last of rising numbers that is not above a limit, or -1. */
export function lastAtOrBefore(numbers, limit) {
  let [low, high] = [0, numbers.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] <= limit) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** The first code points of a text: the server counts as Python does, not in UTF-16. */
export function cut(text, length) {
  if (length >= text.length || !/[\ud800-\udfff]/.test(text)) return text.slice(0, length);
  let end = 0;
  for (let count = 0; count < length && end < text.length; count++) {
    end += text.codePointAt(end) > 0xffff ? 2 : 1;
  }
  return text.slice(0, end);
}
