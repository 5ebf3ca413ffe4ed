/**
 * The frame of the page: which screen an address shows, the bar above it, keys that work everywhere.
 *
 * A screen is a module with `mount(root, route)`, which fills the root and returns
 * `{ title, update?(route), close?() }`. `update` is called when the address changes within the
 * screen; if it returns false, the screen is mounted anew. `close` ends its streams and timers.
 * @typedef {{ path: string[], query: URLSearchParams }} Route
 */

import { key, onUnauthorized } from "./api.js";
import { openDialog } from "./ui/dialog.js";
import { button, fill, find, h, newId } from "./ui/dom.js";
import { bind, showKeys } from "./ui/keys.js";
import { toast } from "./ui/status.js";

const chat = () => import("./chat/chat.js");
const inspector = () => import("./inspect/inspector.js");

/** The first part of an address, and the module of its screen. */
const SCREENS = {
  "": chat,
  c: chat,
  responses: () => import("./lists/responses.js"),
  runs: () => import("./lists/runs.js"),
  usage: () => import("./usage/usage.js"),
  r: inspector,
  inspect: inspector,
};

const NAVIGATION = [
  { label: "Chat", href: "#/", screens: ["", "c"], keys: "g c" },
  { label: "Responses", href: "#/responses", screens: ["responses"], keys: "g r" },
  { label: "Runs", href: "#/runs", screens: ["runs"], keys: "g u" },
  { label: "Usage", href: "#/usage", screens: ["usage"], keys: "g s" },
  { label: "Inspect", href: "#/inspect", screens: ["r", "inspect"], keys: "g i" },
];

/** @returns {Route} */
export function parseRoute(hash) {
  const [path, query = ""] = hash.replace(/^#?\/?/, "").split("?");
  return { path: path.split("/").map(decoded), query: new URLSearchParams(query) };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // a "%" that somebody typed
  }
}

let current = { load: null, screen: null };
let latest = 0;

async function show() {
  const started = ++latest;
  const route = parseRoute(location.hash);
  const [name] = route.path;
  const load = Object.hasOwn(SCREENS, name) ? SCREENS[name] : null;
  markNavigation(name);
  try {
    const isHere = load && current.load === load && current.screen?.update;
    const wasUpdated = isHere && (await current.screen.update(route)) !== false;
    if (started !== latest) return; // the user has gone to another screen meanwhile
    if (!wasUpdated) await mount(started, load, route);
    if (started === latest) setTitle();
  } catch (problem) {
    if (started === latest) fill(newRoot(name), failed(problem));
  }
}

async function mount(started, load, route) {
  const root = newRoot(route.path[0]);
  if (!load) return fill(root, notFound());
  current.load = load;
  const screen = await (await load()).mount(root, route);
  if (started === latest) current.screen = screen;
  else screen.close?.();
}

/** Closes the screen; returns the element of the next one. */
function newRoot(name) {
  current.screen?.close?.();
  current = { load: null, screen: null };
  const root = h("div", { class: `screen screen-${name || "c"}` });
  fill(find("#screen"), root);
  return root;
}

function setTitle() {
  document.title = current.screen?.title ? `${current.screen.title} · Weft` : "Weft";
}

function markNavigation(name) {
  for (const link of find("#nav").children) {
    const isHere = NAVIGATION[link.dataset.index].screens.includes(name);
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

const notFound = () =>
  h("div", { class: "empty" }, h("h1", {}, "Nothing here"), h("p", {}, "This address has no screen. ", h("a", { href: "#/" }, "Go to the chat")));

function failed(problem) {
  return h(
    "div",
    { class: "empty", role: "alert" },
    h("h1", {}, "This screen could not be shown"),
    h("p", {}, problem.message),
    problem.requestId ? h("p", {}, "Request ", h("code", {}, problem.requestId)) : null,
    button("Try again", show, { kind: "primary" }),
  );
}

// The key

let isAsking = false;

async function askForKey() {
  if (isAsking) return;
  isAsking = true;
  const [field, box] = [newId("key"), newId("remember")];
  const input = h("input", { id: field, type: "password", value: key.get(), autocomplete: "off", autofocus: true });
  const remember = h("input", { id: box, type: "checkbox", checked: key.isRemembered() });
  const content = [
    h("p", {}, "A server with ", h("code", {}, "[server.keys]"), " wants one of its keys. It is kept in this tab and sent to this server only."),
    h("label", { for: field }, "API key"),
    input,
    h("p", { class: "check" }, remember, h("label", { for: box }, "Remember it in this browser")),
  ];
  const actions = [
    { label: "Forget", value: () => ({ value: "", remember: false }) },
    { label: "Use this key", value: () => ({ value: input.value.trim(), remember: remember.checked }), kind: "primary" },
  ];
  const given = await openDialog({ title: "API key", content, actions, narrow: true });
  isAsking = false;
  if (!given) return;
  key.set(given.value, given.remember);
  markKey();
  current.load = null;
  show();
}

function markKey() {
  const has = Boolean(key.get());
  fill(find("#key"), h("span", { class: has ? "dot on" : "dot", "aria-hidden": "true" }), "Key");
  find("#key").setAttribute("aria-label", has ? "API key: set" : "API key: none");
}

// Dark and light

const SCHEME = "weft.scheme";
const SCHEMES = {
  auto: { next: "light", sign: "◐", label: "Colours: as the system" },
  light: { next: "dark", sign: "☀", label: "Colours: light" },
  dark: { next: "auto", sign: "☾", label: "Colours: dark" },
};

function setScheme(name) {
  const scheme = name in SCHEMES ? name : "auto";
  document.documentElement.dataset.scheme = scheme;
  localStorage.setItem(SCHEME, scheme);
  const control = find("#scheme");
  control.textContent = SCHEMES[scheme].sign;
  control.setAttribute("aria-label", SCHEMES[scheme].label);
  control.title = SCHEMES[scheme].label;
  control.onclick = () => setScheme(SCHEMES[scheme].next);
}

// Start

fill(
  find("#nav"),
  NAVIGATION.map(({ label, href }, index) => h("a", { href, "data-index": index }, label)),
);
for (const { label, href, keys } of NAVIGATION) {
  bind("Everywhere", keys, `Go to ${label.toLowerCase()}`, () => (location.hash = href));
}
bind("Everywhere", "/", "Search", () => find("[data-search]")?.focus());
bind("Everywhere", "?", "Show this list", showKeys);
setScheme(localStorage.getItem(SCHEME) ?? "auto");
markKey();
find("#key").onclick = askForKey;
find("#help").onclick = showKeys;
find(".skip").onclick = (event) => {
  event.preventDefault(); // the address belongs to the screens
  find("#screen").focus();
};
onUnauthorized(askForKey);
window.addEventListener("hashchange", show);
window.addEventListener("unhandledrejection", (event) => {
  if (event.reason?.name === "AbortError") return event.preventDefault();
  if (!event.reason?.name?.match(/^(ApiError|ConnectionLost|UnreadableFile)$/)) return;
  event.preventDefault(); // shown here, and not an error of the page
  toast(event.reason.message);
});
show();
