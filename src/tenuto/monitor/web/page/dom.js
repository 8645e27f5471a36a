// The one place where text enters the document: as a text node of `safe(value)`.
// It knows no view and asks for nothing; nothing here parses markup.

/** @import { Child } from "./types.js" */

// Characters that act instead of being seen: control, format, surrogate, line and paragraph separators (Unicode's
// Cc, Cf, Cs, Zl, Zp), without the two joiners that Persian and emoji need. The same as `tenuto.jobs.text.safe`.
const HARMFUL =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\u{110bd}\u{110cd}\u{13430}-\u{1343f}\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0001}\u{e0020}-\u{e007f}]/gu;
const ESCAPED = new Map([["\t", "\\t"], ["\n", "\\n"], ["\r", "\\r"]]);
const STYLE = /(?:\u001b\[|\u009b)[0-9;:]*m/g;

/** @param {string} character */
function code(character) {
  const number = character.codePointAt(0) ?? 0;
  const hex = number.toString(16);
  if (number <= 0xff) return ESCAPED.get(character) ?? `\\x${hex.padStart(2, "0")}`;
  return number <= 0xffff ? `\\u${hex.padStart(4, "0")}` : `\\U${hex.padStart(8, "0")}`;
}

/**
 * An outside string as one harmless line: what could act is shown by its code.
 * @param {unknown} value
 */
export function safe(value) {
  return String(value).replace(HARMFUL, code);
}

/**
 * An outside text of several lines: as `safe`, with line ends and tabs kept and colours taken off.
 * @param {string} value
 */
export function safeLines(value) {
  const plain = value.replace(STYLE, "").replaceAll("\r\n", "\n");
  return plain.replace(HARMFUL, (found) => (found === "\n" || found === "\t" ? found : code(found)));
}

const SGR = /(?:\u001b\[|\u009b)([0-9;:]*)m/g;

/**
 * A line of a log with the colours of a terminal: text nodes in spans whose class names the colour.
 * @param {string} value @returns {Node[]}
 */
export function coloured(value) {
  /** @type {Node[]} */
  const found = [];
  let [classes, from] = ["", 0];
  /** @param {string} text */
  const add = (text) => {
    if (!text) return;
    const node = document.createTextNode(safeLines(text));
    found.push(classes ? h("span", { class: classes }, node) : node);
  };
  for (const match of value.matchAll(SGR)) {
    add(value.slice(from, match.index));
    from = match.index + match[0].length;
    classes = painted(classes, (match[1] ?? "").split(/[;:]/).map(Number));
  }
  add(value.slice(from));
  return found;
}

/** @param {string} before @param {number[]} codes */
function painted(before, codes) {
  const kept = new Map(before.split(" ").filter(Boolean).map((one) => [one.slice(0, 1), one]));
  for (let place = 0; place < codes.length; place++) {
    const code = codes[place] ?? 0;
    if (code === 0) kept.clear();
    else if (code === 1) kept.set("b", "bold");
    else if (code === 22) kept.delete("b");
    else if (code === 39) kept.delete("f");
    else if (code >= 30 && code <= 37) kept.set("f", `f${code - 30}`);
    else if (code >= 90 && code <= 97) kept.set("f", `f${code - 90}`);
    else if (code === 38 || code === 48) place += codes[place + 1] === 5 ? 2 : 4;
  }
  return [...kept.values()].join(" ");
}

const SPOKEN = new Set(["title", "aria-label", "placeholder", "aria-valuetext", "value"]);
const SVG = "http://www.w3.org/2000/svg";

/**
 * @param {Element} element
 * @param {Record<string, unknown>} properties
 * @param {Child[]} children
 */
function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
    else element.setAttribute(name, value === true ? "" : SPOKEN.has(name) ? safe(value) : String(value));
  }
  append(element, children);
  return element;
}

/**
 * @param {Element} parent
 * @param {Child[]} children
 */
export function append(parent, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(parent, child);
    else parent.append(child instanceof Node ? child : document.createTextNode(safe(child)));
  }
}

/**
 * An element. Properties are attributes, or listeners if their name begins with `on`.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, unknown>} [properties]
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  filled(element, properties, children);
  return element;
}

/**
 * An element of a drawing.
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, unknown>} [properties]
 * @param {...Child} children
 * @returns {SVGElementTagNameMap[Tag]}
 */
export function svg(tag, properties = {}, ...children) {
  const element = /** @type {SVGElementTagNameMap[Tag]} */ (document.createElementNS(SVG, tag));
  filled(element, properties, children);
  return element;
}

/**
 * The children of an element, replaced.
 * @param {Element} parent
 * @param {...Child} children
 */
export function put(parent, ...children) {
  parent.replaceChildren();
  append(parent, children);
}

/**
 * The text of an element, touched only if it changes: a screen reader hears no repetition.
 * @param {Element} element
 * @param {unknown} value
 */
export function say(element, value) {
  const text = safe(value);
  if (element.textContent !== text) element.textContent = text;
}

/**
 * A text of several lines, as one text node.
 * @param {string} value
 */
export const lines = (value) => document.createTextNode(safeLines(value));

/**
 * A list kept in step with its items: an element stays the same while its key does, so focus and scroll stay too.
 * @template Item
 * @param {Element} parent
 * @param {Item[]} items
 * @param {(item: Item) => string} keyOf
 * @param {(item: Item) => Element & {update?: (item: Item) => void}} make
 */
export function keyed(parent, items, keyOf, make) {
  /** @type {Map<string, Element & {update?: (item: Item) => void}>} */
  const known = new Map();
  for (const child of parent.children) known.set(child.getAttribute("data-keyed") ?? "", child);
  let before = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let element = known.get(key);
    known.delete(key);
    if (element?.update) element.update(item);
    else {
      const made = make(item);
      made.setAttribute("data-keyed", key);
      if (element) {
        if (element === before) before = element.nextElementSibling;
        element.replaceWith(made);
        if (made.nextElementSibling === before) {
          element = made;
          continue;
        }
      }
      element = made;
    }
    if (element === before) before = element.nextElementSibling;
    else parent.insertBefore(element, before);
  }
  for (const rest of known.values()) rest.remove();
}

/**
 * A link to an address of the world, only if it leads to a web page; else plain text.
 * @param {string} address
 */
export function link(address) {
  return /^https?:\/\//i.test(address) && URL.canParse(address)
    ? h("a", { href: address, rel: "noreferrer noopener", target: "_blank" }, address)
    : h("span", {}, address);
}
