/**
 * What the user chose for a conversation: model, instructions, options, tools. It is kept in this
 * browser; the server gets it with each request.
 */

const PREFIX = "weft.conversation.";
const DEFAULTS = { model: "", instructions: "", options: {}, tools: [], always: [] };
const LAST_MODEL = "weft.model";

/** @returns {{ model: string, instructions: string, options: Record<string, any>, tools: any[], always: string[] }} */
export function load(id) {
  const fresh = { ...structuredClone(DEFAULTS), model: localStorage.getItem(LAST_MODEL) ?? "" };
  try {
    return { ...fresh, ...JSON.parse(localStorage.getItem(PREFIX + id) ?? "{}") };
  } catch {
    return fresh;
  }
}

export function save(id, settings) {
  if (settings.model) localStorage.setItem(LAST_MODEL, settings.model);
  if (id) localStorage.setItem(PREFIX + id, JSON.stringify(settings));
}

export function forget(id) {
  localStorage.removeItem(PREFIX + id);
}

/** The body of a request for a turn. */
export function requestBody(settings, conversation, input) {
  const tools = settings.tools.map(({ output_schema, ...tool }) => ({ type: "function", ...tool }));
  return {
    model: settings.model,
    conversation,
    input,
    ...(settings.instructions ? { instructions: settings.instructions } : {}),
    ...settings.options,
    ...(tools.length ? { tools } : {}),
    background: true,
    stream: true,
    store: true,
    include: ["required_action"],
  };
}
