/** Where a trace comes from: a stored response, which may be running, or a capture in memory. */

import { follow, objects, send, withQuery } from "../api.js";

/** Bytes that the server accepts. */
export const LARGEST_CAPTURE = 20 * 1024 * 1024;

export const DIALECTS = [
  ["openai-responses", "Responses"],
  ["anthropic-messages", "Messages"],
  ["openai-chat", "Chat"],
  ["gemini", "Gemini"],
  ["ai-sdk", "AI SDK"],
];

/**
 * @typedef {{ title: string, id: string | null, address: string, capture: Uint8Array | null,
 *   open: (query: Record<string, unknown>, signal: AbortSignal) => Promise<Response>,
 *   side: () => unknown }} Source `side` is what stands for it in a diff
 */

/** @returns {Source} */
export function storedResponse(id) {
  const path = `/v1/responses/${encodeURIComponent(id)}/trace`;
  return {
    title: id,
    id,
    address: `#/r/${encodeURIComponent(id)}`,
    capture: null,
    open: (query, signal) => send("GET", withQuery(path, query), { signal }),
    side: () => id,
  };
}

/**
 * What the models of some upstreams write, which others mean as text: `[label, dialect, quirks]`. The
 * other quirks are about requests.
 */
export const QUIRKS = [
  ["calls in <tool_call> tags", "openai-chat", { text_markup_calls: { begin: "<tool_call>", end: "</tool_call>" } }],
  [
    "calls in special tokens",
    "openai-chat",
    {
      text_markup_calls: {
        begin: "<|tool_call_begin|>",
        end: "<|tool_call_end|>",
        separator: "<|tool_call_argument_begin|>",
        section: ["<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"],
      },
    },
  ],
  ["reasoning without an opening tag", "openai-chat", { implicit_think: true }],
];

/**
 * @param {{ from?: string, quirks?: string }} [reading] its dialect, if the server shall not find it
 *   out, and its quirks, as JSON
 * @returns {Source}
 */
export function captureSource(title, capture, address, reading = {}) {
  return {
    title,
    id: null,
    address,
    capture,
    open: (query, signal) => send("POST", withQuery("/v1/trace", { ...reading, ...query }), { raw: capture, signal }),
    side: () => ({ capture: new TextDecoder().decode(capture), ...reading }),
  };
}

/** The capture that comes with the page. */
export async function sampleSource() {
  const response = await send("GET", "/page/inspect/broken-sample.sse");
  return captureSource("broken-sample.sse", new Uint8Array(await response.arrayBuffer()), "#/inspect/sample");
}

/** The bytes of a file of the user. Raises Error if it is too large. */
export async function fileBytes(file) {
  if (file.size > LARGEST_CAPTURE) {
    throw new Error(`${file.name} is larger than 20 MB. The command line takes any size: weft trace ${file.name}`);
  }
  return new Uint8Array(await file.arrayBuffer());
}

/** Milliseconds of reading after which the page may draw and handle keys. */
const SLICE = 12;

const yieldToBrowser = () => globalThis.scheduler?.yield?.() ?? new Promise((resolve) => setTimeout(resolve));

/** The rows of a response, with pauses: what is there already is read without any. */
async function* rowsOf(response, onBytes) {
  let start = performance.now();
  for await (const row of objects(response, onBytes)) {
    yield row;
    if (performance.now() - start < SLICE) continue;
    await yieldToBrowser();
    start = performance.now();
  }
}

/**
 * Reads a trace to its end. A lost connection is opened again behind the last row.
 * @param {Source} source @param {string} as the dialect of the emitted events, or ""
 * @param {import("./trace.js").Trace} trace
 * @param {{ onRow: () => void, onState: (state: string, seconds?: number) => void,
 *   onHead: (head: { source: string, from: string, as: string, run: string | null }) => void, signal: AbortSignal }} options
 */
export function readTrace(source, as, trace, { onRow, onState, onHead, signal }) {
  return follow({
    open: async (inner) => {
      const response = await source.open({ as, after: trace.last || null }, inner);
      const header = (name) => response.headers.get(`weft-trace-${name}`);
      onHead({ source: header("source"), from: header("from"), as: header("as"), run: response.headers.get("weft-run") });
      return response;
    },
    read: rowsOf,
    onEvent: (row) => {
      trace.add(row);
      onRow();
    },
    isOver: () => trace.isOver,
    onState,
    signal,
  });
}
