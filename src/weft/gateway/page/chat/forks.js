/**
 * Branches. To edit or retry makes a fork: a new conversation with the items before that point. The
 * forks of one point, and the conversation they come from, can be paged through.
 */

import { all, post } from "../api.js";
import { button, h } from "../ui/dom.js";

/** The conversation and item that a fork of this conversation at this place starts from. */
export function forkPoint(conversation, items, index) {
  const after = index > 0 ? items[index - 1].id : "";
  const { forked_from: from, forked_after: at } = conversation.metadata;
  // An edit of what is the first edit already is one more branch of the same point.
  return from && at === after ? { conversation: from, after } : { conversation: conversation.id, after };
}

/** Creates a fork; returns it. */
export function createFork(point, title) {
  const metadata = { ...(title ? { title } : {}), forked_from: point.conversation, forked_after: point.after };
  // Before the first item there is nothing to copy.
  if (!point.after) return post("/v1/conversations", { metadata });
  const fork = { conversation: point.conversation, after_item: point.after };
  return post("/v1/conversations", { metadata, fork });
}

/**
 * The branches at each item of a conversation: from the id of the item before the point ("" at the
 * start) to the ids of the conversations, oldest first. Points with one branch are left out.
 * @returns {Promise<Map<string, string[]>>}
 */
export async function branches(conversation) {
  const others = await all("/v1/conversations", {}, 1000);
  const points = new Map();
  const add = (from, after, id) => {
    const key = JSON.stringify([from, after]);
    if (!points.has(key)) points.set(key, [from]);
    points.get(key).push(id);
  };
  for (const one of others.toReversed()) {
    const { forked_from: from, forked_after: after } = one.metadata;
    if (from !== undefined && after !== undefined) add(from, after, one.id);
  }
  const { forked_from: origin, forked_after: at } = conversation.metadata;
  const isThere = new Set(others.map((one) => one.id));
  const found = new Map();
  for (const [key, ids] of points) {
    const [from, after] = JSON.parse(key);
    const isMine = from === conversation.id || (from === origin && after === at);
    const alive = ids.filter((id) => isThere.has(id));
    if (isMine && alive.length > 1) found.set(after, alive);
  }
  return found;
}

/** ‹ 2/3 › */
export function pager(ids, current) {
  const at = ids.indexOf(current);
  const go = (index) => (location.hash = `#/c/${ids[index]}`);
  return h(
    "div",
    { class: "pager", role: "group", "aria-label": "Branches" },
    button("‹", () => go(at - 1), { kind: "quiet small", disabled: at <= 0, "aria-label": "Previous branch" }),
    h("span", {}, `${at + 1}/${ids.length}`),
    button("›", () => go(at + 1), { kind: "quiet small", disabled: at === ids.length - 1, "aria-label": "Next branch" }),
  );
}
