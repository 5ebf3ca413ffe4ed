/**
 * What the tools of an agent say while they run. It is in the events of the run, not in its response,
 * which has only their results.
 */

import { ApiError, follow, send, withQuery } from "../api.js";

const ENDS = ["run.finished", "run.failed", "run.cancelled"];
const KINDS = ["turn.finished", "call.intended", "call.progress", ...ENDS].join(",");

/**
 * A call that runs: `place` is its place among equal calls of its turn, `text` its last preliminary
 * result, or null.
 * @typedef {{ name: string, arguments: string, place: number, text: string | null }} RunningCall
 */

/**
 * Follows a run until it ends. `onChange` is called with all calls that were begun, by their ids.
 * @param {string} run @param {(calls: Map<string, RunningCall>) => void} onChange
 * @param {AbortSignal} signal
 */
export async function followRun(run, onChange, signal) {
  const path = `/v1/runs/${encodeURIComponent(run)}/events`;
  const [known, begun] = [new Map(), new Map()];
  let after = 0;
  const take = (id, text) => {
    if (known.has(id)) onChange(begun.set(id, { ...known.get(id), text }));
  };
  const handle = {
    "turn.finished": ({ calls = [] }) => calls.forEach((call, index) => known.set(call.id, { name: call.name, arguments: call.arguments, place: placeOf(calls, index) })),
    "call.intended": ({ call }) => take(call, null),
    "call.progress": ({ call, text }) => take(call, text),
  };
  try {
    await follow({
      open: (inner) => send("GET", withQuery(path, { stream: true, kinds: KINDS, after }), { signal: inner }),
      onEvent: ({ data }) => {
        const event = JSON.parse(data);
        after = event.seq ?? after; // progress is in no log, and has no number
        handle[event.kind]?.(event);
        return ENDS.includes(event.kind);
      },
      signal,
    });
  } catch (problem) {
    // Without it the cards say less, and nothing is wrong with the answer.
    if (!signal.aborted && !(problem instanceof ApiError)) throw problem;
  }
}

function placeOf(calls, index) {
  const isEqual = (one) => one.name === calls[index].name && one.arguments === calls[index].arguments;
  return calls.slice(0, index).filter(isEqual).length;
}
