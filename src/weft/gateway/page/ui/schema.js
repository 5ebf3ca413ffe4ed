/** Checks what a person types as the output of a tool: the common part of JSON Schema. */

const TYPES = {
  object: (value) => value !== null && typeof value === "object" && !Array.isArray(value),
  array: Array.isArray,
  string: (value) => typeof value === "string",
  number: (value) => typeof value === "number",
  integer: Number.isInteger,
  boolean: (value) => typeof value === "boolean",
  null: (value) => value === null,
};

/**
 * Returns what is wrong with a value, or null. Keywords that are not known here are not checked.
 * @param {any} schema @param {any} value @returns {string | null}
 */
export function mismatch(schema, value, path = "the output") {
  if (schema === null || typeof schema !== "object") return null;
  const types = [schema.type ?? []].flat();
  if (types.length && !types.some((type) => TYPES[type]?.(value) ?? true)) {
    return `${path}: expected ${types.join(" or ")}`;
  }
  if (schema.enum && !schema.enum.some((one) => JSON.stringify(one) === JSON.stringify(value))) {
    return `${path}: expected one of ${schema.enum.map((one) => JSON.stringify(one)).join(", ")}`;
  }
  if (TYPES.object(value)) return objectMismatch(schema, value, path);
  if (Array.isArray(value) && schema.items) {
    for (const [index, one] of value.entries()) {
      const found = mismatch(schema.items, one, `${path}[${index}]`);
      if (found) return found;
    }
  }
  return null;
}

function objectMismatch(schema, value, path) {
  const missing = (schema.required ?? []).find((name) => !(name in value));
  if (missing !== undefined) return `${path}: ${missing} is missing`;
  for (const [name, inner] of Object.entries(schema.properties ?? {})) {
    const found = name in value ? mismatch(inner, value[name], `${path}.${name}`) : null;
    if (found) return found;
  }
  return null;
}
