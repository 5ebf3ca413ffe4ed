/** Numbers and times for people. */

const SECOND = 1000;
const STEPS = /** @type {[number, Intl.RelativeTimeFormatUnit][]} */ ([
  [60 * SECOND, "second"],
  [3600 * SECOND, "minute"],
  [86_400 * SECOND, "hour"],
  [7 * 86_400 * SECOND, "day"],
]);
const UNIT = { second: SECOND, minute: 60 * SECOND, hour: 3600 * SECOND, day: 86_400 * SECOND };
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "narrow" });
const day = new Intl.DateTimeFormat("en", { dateStyle: "medium" });
const exact = new Intl.DateTimeFormat("en", { dateStyle: "medium", timeStyle: "medium" });
const whole = new Intl.NumberFormat("en");

/** "3 min. ago", or the date if that was long ago. `at` is in seconds, as the API has it. */
export function ago(at, now = Date.now()) {
  const passed = now - at * SECOND;
  if (passed < 10 * SECOND) return "just now";
  for (const [limit, unit] of STEPS) {
    if (passed < limit) return relative.format(-Math.floor(passed / UNIT[unit]), unit);
  }
  return day.format(at * SECOND);
}

export const exactTime = (at) => exact.format(at * SECOND);

export const count = (number) => whole.format(number);

/** "1 call", "2 calls". */
export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/** "$0.0042", "$1.20", "$1,234.50": two significant digits, at least cents. */
export function dollars(amount) {
  const digits = amount > 0 && amount < 1 ? Math.min(8, 1 - Math.floor(Math.log10(amount))) : 2;
  return `$${amount.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: Math.max(2, digits) })}`;
}

/** "0.3 s", "42 s", "3 min 5 s". */
export function duration(seconds) {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const rest = Math.round(seconds % 60);
  return `${Math.floor(seconds / 60)} min${rest ? ` ${rest} s` : ""}`;
}

/** "12 kB" */
export function size(bytes) {
  if (bytes < 1000) return `${bytes} B`;
  if (bytes < 1e6) return `${(bytes / 1e3).toFixed(bytes < 1e4 ? 1 : 0)} kB`;
  return `${(bytes / 1e6).toFixed(1)} MB`;
}

/** Invisible characters that change how a text looks: controls, directions, tags. */
const INVISIBLE = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]|\r(?!\n)|\udb40[\udc00-\udfff]/g;
const escaped = (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;

/** Shows such characters as JSON escapes them: what somebody approves must not look like something else. */
export const visible = (text) => text.replace(INVISIBLE, (found) => found.split("").map(escaped).join(""));

/** The first words of a text, on one line. */
export function clipped(text, length = 60) {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > length ? `${line.slice(0, length - 1).trimEnd()}…` : line;
}
