/** What a row says, in a few words: JSON without what is the same in every frame. */

import { visible } from "../ui/format.js";

/** Fields of the outermost object that say nothing new. */
const ENVELOPE = new Set(["id", "object", "created", "created_at", "model", "system_fingerprint", "sequence_number", "type", "responseId", "modelVersion", "createTime", "service_tier", "provider", "obfuscation", "item_id"]);
const PLACES = new Set(["index", "output_index", "content_index", "summary_index"]);
const MAX_PARSED = 20_000;
const MAX_SHOWN = 240;

/** The path to what differs, and its value: `choices.delta.content "Oslo"`. */
export function gist(data) {
  if (data.length > MAX_PARSED) return data.slice(0, MAX_SHOWN);
  let value;
  try {
    value = JSON.parse(data);
  } catch {
    return data.slice(0, MAX_SHOWN);
  }
  if (value === null || typeof value !== "object") return data.slice(0, MAX_SHOWN);
  const path = [];
  for (let isOuter = true; ; isOuter = false) {
    const entries = Object.entries(value).filter(([name, one]) => isInformative(name, one, isOuter));
    if (entries.length !== 1) {
      if (!Array.isArray(value)) value = entries.length || !isOuter ? Object.fromEntries(entries) : value;
      break;
    }
    if (!Array.isArray(value)) path.push(entries[0][0]);
    value = entries[0][1];
    if (value === null || typeof value !== "object") break;
  }
  return `${path.join(".")} ${JSON.stringify(value)}`.trim().slice(0, MAX_SHOWN);
}

function isInformative(name, value, isOuter) {
  if (value === null || value.length === 0 || (PLACES.has(name) && value === 0)) return false;
  return !(isOuter && ENVELOPE.has(name));
}

/** What stands before the text of a row: its time, its type or its name. */
export const HEADS = {
  frame: (row) => (row.t === null ? `#${row.n}` : row.t.toFixed(2)),
  part: (row) => row.part.type,
  finding: (row) => `⚠ ${row.code}`,
  emit: (row) => row.event ?? "data",
};

const TEXTS = {
  frame: (row) => (row.event ? `${row.event} ` : "") + gist(row.data),
  part: (row) => partText(row),
  finding: (row) => row.detail,
  emit: (row) => gist(row.data),
};

/** @type {WeakMap<object, string>} kept because rows are drawn again when the user scrolls */
const texts = new WeakMap();

export function textOf(row) {
  if (!texts.has(row)) texts.set(row, visible(TEXTS[row.lane](row)));
  return texts.get(row);
}

function partText({ item, part }) {
  if (typeof part.delta === "string") return `${item} +${JSON.stringify(part.delta.slice(0, MAX_SHOWN))}`;
  const { type, id, ...rest } = part;
  const about = part.name ?? part.reason ?? part.message ?? part.model ?? "";
  if (about || !Object.keys(rest).length) return [item, about].filter(Boolean).join(" ");
  return [item, JSON.stringify(rest).slice(0, MAX_SHOWN)].filter(Boolean).join(" ");
}
