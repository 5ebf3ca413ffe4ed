/**
 * What a conversation holds, in the order it happened: its items, cut into turns by the responses
 * that made them.
 *
 * A response that runs, or failed before any content, has added nothing to the conversation yet; its
 * question is read from its own input. Items without a response were added by hand, or copied by a
 * fork.
 */

import { all, get } from "../api.js";

/** The last responses, whose answers have footers. Older items are shown without. */
const DETAILED = 60;
const RUNNING = ["queued", "in_progress"];
/** Responses that are requested at the same time: a browser has six connections. */
const MAX_PARALLEL = 4;

/**
 * @typedef {{ inputs: any[], outputs: any[], listed: any, response: any, isRunning: boolean }} PastTurn
 * `listed` is the response as the list has it, `response` the whole of it; null if there is none.
 */

/** @returns {Promise<{ conversation: any, items: any[], turns: PastTurn[] }>} */
export async function readHistory(id) {
  const path = `/v1/conversations/${encodeURIComponent(id)}`;
  const [conversation, [items, listed]] = await Promise.all([get(path), readItems(id, path)]);
  const responses = await inParallel(listed.reverse(), readResponse);
  return { conversation, items, turns: turnsOf(items, responses) };
}

/** The items, and the responses at the same moment: one that ends in between is seen in both, or in neither. */
async function readItems(id, path) {
  const list = () => all("/v1/responses", { conversation: id, limit: DETAILED }, DETAILED);
  for (let listed = await list(); ; ) {
    // Later than the list: the items of what has ended by then are there.
    const items = await all(`${path}/items`, { order: "asc" }, Infinity);
    const running = listed.filter(isRunning);
    const now = running.length ? await list() : [];
    const still = new Set(now.filter(isRunning).map((one) => one.id));
    if (running.every((one) => still.has(one.id))) return [items, listed];
    listed = now;
  }
}

const isRunning = ({ status }) => RUNNING.includes(status);

async function readResponse(listed) {
  const path = `/v1/responses/${encodeURIComponent(listed.id)}`;
  const response = isRunning(listed) ? null : await get(path);
  const ids = new Set((response?.output ?? []).map((item) => item.id));
  const input = ids.size ? [] : (await get(`${path}/input_items`, { order: "asc", limit: 100 })).data;
  return { listed, response, ids, input, isRunning: isRunning(listed) };
}

/** Cuts the items into turns, oldest first. */
export function turnsOf(items, responses) {
  const turns = [];
  const places = new Map(items.map((item, index) => [item.id, index]));
  let at = 0;
  const addForeign = (end) => {
    turns.push(...withoutResponse(items.slice(at, end)));
    at = end;
  };
  const placed = responses.map((response) => ({ response, place: placeOf(response, places, items) }));
  for (const [index, { response, place }] of placed.entries()) {
    const { listed, response: whole, isRunning, input } = response;
    const next = placed.slice(index).find((one) => one.place && one.place.first >= at)?.place;
    addForeign(Math.max(at, next?.start ?? items.length));
    if (place && place === next) {
      const [inputs, outputs] = [items.slice(at, place.first), items.slice(place.first, place.last + 1)];
      turns.push({ inputs, outputs, listed, response: whole, isRunning });
      at = place.last + 1;
    } else turns.push({ inputs: input, outputs: [], listed, response: whole, isRunning });
  }
  addForeign(items.length);
  return turns;
}

/** Where the output of a response is among the items, and where the input before it starts. */
function placeOf({ ids }, places, items) {
  const found = [...ids].map((id) => places.get(id)).filter((place) => place !== undefined);
  if (!found.length) return null;
  const [first, last] = [Math.min(...found), Math.max(...found)];
  let start = first;
  while (start > 0 && isInput(items[start - 1])) start--;
  return { start, first, last };
}

export const isUserMessage = (item) => item.type === "message" && item.role !== "assistant";

export const isAnswer = (item) => /_output$/.test(item.type ?? "") || item.type === "mcp_approval_response";

const isInput = (item) => isUserMessage(item) || isAnswer(item);

/** A turn for each message of the user. */
function withoutResponse(items) {
  const turns = [];
  for (const item of items) {
    if (isUserMessage(item) || !turns.length) {
      turns.push({ inputs: [], outputs: [], listed: null, response: null, isRunning: false });
    }
    turns.at(-1)[isUserMessage(item) ? "inputs" : "outputs"].push(item);
  }
  return turns;
}

async function inParallel(values, run) {
  const found = new Array(values.length);
  let next = 0;
  const work = async () => {
    while (next < values.length) {
      const mine = next++;
      found[mine] = await run(values[mine]);
    }
  };
  await Promise.all(Array.from({ length: MAX_PARALLEL }, work));
  return found;
}
