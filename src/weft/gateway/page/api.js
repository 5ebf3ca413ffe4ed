/**
 * The gateway's public API: requests, errors, streams that resume. The page uses nothing else.
 *
 * Keys are kept for the tab, or in the browser if the user asked for it, and sent in a header.
 */

const KEY = "weft.key";
const FIRST_DELAY = 1000;
const MAX_DELAY = 30_000;
/** Milliseconds without a byte after which a connection counts as lost; the server sends keepalives. */
const SILENCE = 60_000;
/** Milliseconds after which a hidden tab closes its stream: a browser has six connections in all. */
const HIDDEN_TIMEOUT = 10_000;

/** An error response of the server. */
export class ApiError extends Error {
  /** @param {number} status @param {any} body @param {Headers} headers */
  constructor(status, body, headers) {
    const error = body?.error ?? {};
    super(error.message ?? `HTTP ${status}`);
    this.name = "ApiError";
    this.status = status;
    this.code = error.code ?? error.type ?? null;
    this.param = error.param ?? null;
    this.requestId = headers.get("weft-request-id");
    this.upstream = headers.get("weft-upstream");
    this.retryAfter = Number(headers.get("retry-after")) || null;
  }
  /** Whether the same request may succeed later. */
  get isTemporary() {
    return this.status === 429 || this.status >= 500;
  }
}

/** The server could not be reached, or the connection broke. */
export class ConnectionLost extends Error {
  name = "ConnectionLost";
}

export const key = {
  get: () => sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY) ?? "",
  isRemembered: () => localStorage.getItem(KEY) !== null,
  set(value, remember) {
    key.clear();
    if (value) (remember ? localStorage : sessionStorage).setItem(KEY, value);
  },
  clear() {
    sessionStorage.removeItem(KEY);
    localStorage.removeItem(KEY);
  },
};

let askForKey = () => {};

/** Sets what is done when the server requires a key. */
export function onUnauthorized(run) {
  askForKey = run;
}

/** "/v1/x?a=1", without what is null, undefined or empty. */
export function withQuery(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => (value ?? "") !== "");
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return text ? `${path}?${text}` : path;
}

/**
 * Returns the response if its status says success. Raises ApiError or ConnectionLost.
 * @param {string} method @param {string} path
 * @param {{ body?: unknown, raw?: BodyInit, headers?: Record<string, string>, signal?: AbortSignal,
 *   keepalive?: boolean }} [options] `keepalive`: the request outlives the page
 */
export async function send(method, path, { body, raw, headers = {}, signal, keepalive = false } = {}) {
  const all = new Headers(headers);
  if (body !== undefined || raw !== undefined) all.set("content-type", "application/json");
  const used = key.get();
  if (used) all.set("authorization", `Bearer ${used}`);
  const data = raw ?? (body === undefined ? undefined : JSON.stringify(body));
  let response;
  try {
    response = await fetch(path, {
      method,
      headers: all,
      body: data,
      signal,
      keepalive,
      cache: "no-store",
      credentials: "omit",
    });
  } catch (problem) {
    if (signal?.aborted) throw problem;
    throw new ConnectionLost("the server cannot be reached");
  }
  if (response.ok) return response;
  const text = await response.text().catch(() => "");
  let parsed = null;
  try {
    parsed = JSON.parse(text);
  } catch {
    // A proxy on the way may answer with anything.
  }
  if (response.status === 401 && used === key.get()) askForKey(); // not of a key that was replaced
  throw new ApiError(response.status, parsed, response.headers);
}

const json = async (response) => (await response).json();
export const get = (path, query, signal) => json(send("GET", withQuery(path, query), { signal }));
export const post = (path, body = {}, options = {}) => json(send("POST", path, { body, ...options }));
export const remove = (path) => json(send("DELETE", path));

/** Yields the pages of a list, as the API cuts it, one array after the other. */
export async function* pages(path, query = {}) {
  let { after } = query;
  for (;;) {
    const page = await get(path, { limit: 100, ...query, after });
    yield page.data;
    if (!page.has_more || !page.data.length) return;
    after = page.last_id ?? page.data.at(-1).id;
  }
}

/** The whole list, up to `most` objects. */
export async function all(path, query = {}, most = 1000) {
  const found = [];
  for await (const page of pages(path, query)) {
    found.push(...page);
    if (found.length >= most) break;
  }
  return found;
}

// Streams

/** Yields the lines of a response, without their ends. Raises ConnectionLost if it breaks. */
export async function* lines(response, onBytes = () => {}) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = []; // a line may be as long as an answer: its pieces are joined once
  try {
    for (;;) {
      const { value, done } = await reader.read();
      onBytes();
      if (done) break;
      const [first, ...others] = value.split("\n");
      rest.push(first);
      for (const next of others) {
        const line = rest.join("");
        rest = [next];
        yield line.endsWith("\r") ? line.slice(0, -1) : line;
      }
    }
  } catch {
    throw new ConnectionLost("the connection broke");
  } finally {
    reader.cancel().catch(() => {});
  }
  if (rest.some(Boolean)) yield rest.join("");
}

/** Yields the server-sent events of a response: `{ event, data, id }`. */
export async function* events(response, onBytes) {
  let [event, id, data] = ["", "", []];
  for await (const line of lines(response, onBytes)) {
    if (line === "") {
      if (data.length) yield { event, id, data: data.join("\n") };
      [event, data] = ["", []];
      continue;
    }
    const colon = line.indexOf(":");
    if (colon === 0) continue; // a comment: the keepalive
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") data.push(value);
    else if (name === "event") event = value;
    else if (name === "id") id = value;
  }
}

/** Yields the objects of a response that has one JSON object a line. */
export async function* objects(response, onBytes) {
  for await (const line of lines(response, onBytes)) if (line) yield JSON.parse(line);
}

/**
 * Follows a stream to its end, over as many connections as it takes: a lost one is opened again
 * behind the last event, and a hidden tab has none. Nothing comes twice, because `open` says where
 * to go on.
 *
 * `onEvent` returns true at the last event. `onState` is called with "open", or with "waiting" and
 * the seconds until the next attempt. Raises ApiError for what will not go away, and AbortError.
 *
 * `read` yields what `onEvent` is given; `isOver` says at the end of a connection whether that was all.
 * @param {{ open: (signal: AbortSignal) => Promise<Response>,
 *   onEvent: (event: any) => boolean | void, isOver?: () => boolean,
 *   read?: (response: Response, onBytes: () => void) => AsyncIterable<any>,
 *   onState?: (state: "open" | "waiting", seconds?: number) => void, signal?: AbortSignal }} options
 */
export async function follow({ open, onEvent, onState = () => {}, signal, read = events, isOver = () => false }) {
  let delay = FIRST_DELAY;
  for (;;) {
    signal?.throwIfAborted();
    await untilVisible(signal);
    const connection = new Connection(signal);
    try {
      const response = await open(connection.signal);
      onState("open");
      for await (const event of read(response, connection.touch)) {
        delay = FIRST_DELAY;
        if (onEvent(event)) return;
      }
      if (isOver()) return;
      // An end without its last event is a connection that was closed on the way.
    } catch (problem) {
      if (signal?.aborted) throw problem;
      const isPassing = problem instanceof ConnectionLost || connection.wasClosedHere;
      if (!isPassing && !(problem instanceof ApiError && problem.isTemporary)) throw problem;
      delay = Math.max(delay, 1000 * (problem.retryAfter ?? 0));
    } finally {
      connection.close();
    }
    if (connection.wasHidden) continue;
    onState("waiting", Math.round(delay / 1000));
    await pause(delay, signal);
    delay = Math.min(2 * delay, MAX_DELAY);
  }
}

/** One connection of a stream, which ends if nothing comes, or if the tab is hidden. */
class Connection {
  #controller = new AbortController();
  #silence = 0;
  #hidden = 0;
  wasHidden = false;
  wasClosedHere = false;

  constructor(outer) {
    this.signal = outer ? AbortSignal.any([outer, this.#controller.signal]) : this.#controller.signal;
    document.addEventListener("visibilitychange", this.#look);
    this.touch();
    this.#look();
  }

  touch = () => {
    clearTimeout(this.#silence);
    this.#silence = setTimeout(() => this.#end(), SILENCE);
  };

  #look = () => {
    clearTimeout(this.#hidden);
    if (document.visibilityState !== "hidden") return;
    this.#hidden = setTimeout(() => {
      this.wasHidden = true;
      this.#end();
    }, HIDDEN_TIMEOUT);
  };

  #end() {
    this.wasClosedHere = true;
    this.#controller.abort();
  }

  close() {
    clearTimeout(this.#silence);
    clearTimeout(this.#hidden);
    document.removeEventListener("visibilitychange", this.#look);
    this.#controller.abort();
  }
}

async function untilVisible(signal) {
  while (document.visibilityState === "hidden") await once(document, "visibilitychange", signal);
}

/** Waits; a network that comes back ends it early. */
function pause(milliseconds, signal) {
  const stop = new AbortController();
  const timer = new Promise((resolve) => {
    const id = setTimeout(resolve, milliseconds);
    stop.signal.addEventListener("abort", () => clearTimeout(id));
  });
  const inner = signal ? AbortSignal.any([signal, stop.signal]) : stop.signal;
  const online = once(window, "online", inner).catch(() => {});
  return Promise.race([timer, online]).finally(() => stop.abort());
}

function once(target, name, signal) {
  return new Promise((resolve, reject) => {
    target.addEventListener(name, resolve, { once: true, signal });
    signal?.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
}
