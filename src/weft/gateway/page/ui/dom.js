/** Elements without HTML strings: every text is a text node. */

/** @typedef {Node | string | number | null | undefined | false | Child[]} Child */

const SVG = "http://www.w3.org/2000/svg";

/**
 * Returns a new element. An attribute that is null, undefined or false is left out, true is an empty
 * one, and a function is a listener: `onclick`.
 * @param {string} tag
 * @param {Record<string, unknown>} [attributes]
 * @param {...Child} children
 * @returns {HTMLElement}
 */
export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, ...children);
  return element;
}

/** @param {Node} parent @param {...Child} children */
export function append(parent, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    parent.appendChild(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Replaces what is in an element. */
export function fill(parent, ...children) {
  parent.replaceChildren();
  append(parent, ...children);
}

/** As `fill`, for elements; those that are equal stay, so that a click that has begun on one is not lost. */
export function refill(parent, elements) {
  const before = [...parent.children];
  elements.forEach((element, index) => {
    if (!before[index]) parent.append(element);
    else if (!before[index].isEqualNode(element)) before[index].replaceWith(element);
  });
  for (const rest of before.slice(elements.length)) rest.remove();
}

/** A button. `kind` is a class: primary, quiet, danger. */
export function button(label, onclick, { kind = "", ...attributes } = {}) {
  return h("button", { type: "button", class: kind || null, onclick, ...attributes }, label);
}

/** @param {string} selector @param {ParentNode} [root] @returns {any} */
export const find = (selector, root = document) => root.querySelector(selector);

let lastId = 0;

/** A new id for `for`, `aria-labelledby` and the like. */
export const newId = (prefix = "id") => `${prefix}-${++lastId}`;

/**
 * Tells whether a mouse button is down in an element. What is pressed must not be drawn anew: browsers
 * drop a click, or the second one of two, if its element is gone when the button is up. `onRelease`
 * is called after the click.
 */
export function pressOf(element, onRelease) {
  let isPressed = false;
  element.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    isPressed = true;
    const release = () => {
      removeEventListener("pointerup", release);
      removeEventListener("pointercancel", release);
      isPressed = false;
      requestAnimationFrame(onRelease);
    };
    addEventListener("pointerup", release);
    addEventListener("pointercancel", release);
  });
  return () => isPressed;
}

/** Runs a function at most once per frame, however often it is called. */
export function oncePerFrame(run) {
  let scheduled = false;
  return () => {
    if (scheduled) return;
    scheduled = true;
    requestAnimationFrame(() => {
      scheduled = false;
      run();
    });
  };
}
