/** Finds the rows that match a search, in slices: the page stays usable however many there are. */

/** Rows that are searched in one slice. */
const SLICE = 2000;
/** Milliseconds between two drawings while rows are searched. */
const DRAW_EVERY = 200;

const whenIdle = globalThis.requestIdleCallback ?? ((run) => setTimeout(run));

const WORDS = {
  frame: (row) => `${row.event ?? ""} ${row.data}`,
  part: (row) => JSON.stringify(row.part),
  finding: (row) => `${row.code} ${row.detail}`,
  emit: (row) => `${row.event ?? ""} ${row.data}`,
  end: () => "",
};

/** Whether a text matches: a regular expression, or the text itself if it is not a valid one. */
export function matcher(wanted) {
  try {
    const pattern = new RegExp(wanted, "i");
    return (text) => pattern.test(text);
  } catch {
    const small = wanted.toLowerCase();
    return (text) => text.toLowerCase().includes(small);
  }
}

export class RowFilter {
  #test = null;
  #trace = null;
  #found = new Set();
  #done = 0;
  #isScheduled = false;
  #drawn = 0;
  #onChange;

  /** @param {() => void} onChange is called when more rows were found, and at the end */
  constructor(onChange) {
    this.#onChange = onChange;
  }

  get isActive() {
    return this.#test !== null;
  }

  has = (index) => this.#found.has(index);

  /** Changes the search; an empty text ends it. */
  set(wanted) {
    this.#test = wanted ? matcher(wanted) : null;
    this.#trace = null;
  }

  /** Searches the rows of a trace that were not searched yet. */
  scan(trace) {
    if (trace !== this.#trace) {
      this.#trace = trace;
      this.#found = new Set();
      this.#done = 0;
    }
    if (!this.isActive || this.#isScheduled || this.#done === trace.rows.length) return;
    this.#isScheduled = true;
    whenIdle(() => this.#slice());
  }

  #slice() {
    this.#isScheduled = false;
    if (!this.isActive || !this.#trace) return this.#onChange(); // the search was changed
    const { rows } = this.#trace;
    const end = Math.min(rows.length, this.#done + SLICE);
    for (; this.#done < end; this.#done++) {
      const row = rows[this.#done];
      if (this.#test(WORDS[row.lane](row))) this.#found.add(this.#done);
    }
    const now = performance.now();
    if (end < rows.length && now - this.#drawn < DRAW_EVERY) return this.scan(this.#trace);
    this.#drawn = now;
    this.#onChange();
  }
}
