// Small parts that several views draw: states, bars, links to jobs and groups, tables of facts, choices.
// They hold no state and ask for nothing.

import { h } from "./dom.js";
import { address, glyph, groupGlyph, groupName, nameOfKey, short, STATES } from "./text.js";

/** @import { Child, Group, Job, State } from "./types.js" */

/** @param {string} state @param {Child} [words] */
export const stateMark = (state, words) =>
  h("span", { class: "state", "data-state": state }, h("span", { "aria-hidden": "true" }, glyph(state)), " ", words ?? state);

/** @param {Job} job */
export const jobLink = (job) =>
  h("a", { href: address("job", { key: job.key }), "data-key": job.key }, nameOfKey(job.key));

/** @param {string} key */
export const keyLink = (key) => h("a", { href: address("job", { key }), "data-key": key }, nameOfKey(key));

/** @param {Job} job */
export const tagWords = (job) => [...Object.entries(job.tags)].map(([name, value]) => `${name}=${value}`).join(" ");

/**
 * A bar from 0 to 1, with its words for those who do not see it.
 * @param {number} fraction @param {string} label
 */
export function bar(fraction, label) {
  const element = h("progress", { max: 1, "aria-label": label });
  element.value = Math.max(0, Math.min(1, fraction));
  return element;
}

/**
 * How many jobs are in which state, as one stacked bar; the numbers stand beside it.
 * @param {Partial<Record<State, number>>} counts
 */
export function stateBar(counts) {
  const total = STATES.reduce((sum, state) => sum + (counts[state] ?? 0), 0);
  const parts = STATES.filter((state) => (counts[state] ?? 0) > 0).map((state) => {
    const part = h("span", { class: "fill", "data-state": state });
    part.style.flexGrow = String((counts[state] ?? 0) / Math.max(total, 1));
    return part;
  });
  return h("div", { class: "stack", "aria-hidden": "true" }, parts);
}

/** @param {Partial<Record<State, number>>} counts @param {(state: State) => string} [to] */
export const countMarks = (counts, to) =>
  STATES.filter((state) => (counts[state] ?? 0) > 0).map((state) => {
    const words = stateMark(state, `${short(counts[state])} ${state}`);
    return to ? h("a", { href: to(state), class: "chip" }, words) : words;
  });

/**
 * As `countMarks`, short: the words are there for those who do not see the signs.
 * @param {Partial<Record<State, number>>} counts
 */
export const shortCounts = (counts) =>
  STATES.filter((state) => (counts[state] ?? 0) > 0).map((state) => stateMark(state, [short(counts[state]), h("span", { class: "unseen" }, ` ${state}`)]));

/** @param {Group} group */
export const groupTitle = (group) => [h("span", { "aria-hidden": "true" }, groupGlyph(group)), " ", groupName(group)];

/**
 * A table with headings; numbers stand to the right.
 * @param {string} caption @param {string[]} heads @param {Child[][]} rows @param {Set<number>} [numbers]
 */
export function plainTable(caption, heads, rows, numbers = new Set()) {
  /** @param {number} place */
  const kind = (place) => (numbers.has(place) ? "number" : undefined);
  return h(
    "div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h("table", {},
      h("thead", {}, h("tr", {}, heads.map((head, place) => h("th", { scope: "col", class: kind(place) }, head)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, place) => h("td", { class: kind(place), "data-head": heads[place] }, cell)))))));
}

/**
 * A choice with a label.
 * @param {string} label @param {[value: string, words: string][]} options @param {string} chosen @param {(value: string) => void} changed
 */
export function choice(label, options, chosen, changed) {
  const select = h("select", { onchange: () => changed(select.value) },
    options.map(([value, words]) => h("option", { value, selected: value === chosen }, words)));
  return h("label", { class: "choice" }, h("span", {}, label), select);
}

/**
 * A choice of the group that a view shows.
 * @param {Group[]} groups @param {string} chosen @param {(group: string) => void} changed @param {string} [all]
 */
export function groupChoice(groups, chosen, changed, all) {
  /** @type {[string, string][]} */
  const options = groups.map((group) => [group.group, `${groupGlyph(group)} ${groupName(group)}`]);
  if (all !== undefined) options.unshift(["", all]);
  if (chosen && !groups.some((group) => group.group === chosen)) options.push([chosen, chosen]);
  return choice("Group", options, chosen, changed);
}

/**
 * A function that runs at once, and then not more than once in a while.
 * @param {() => unknown} run @param {number} ms
 */
export function throttled(run, ms) {
  let next = 0;
  let timer = 0;
  return () => {
    if (timer) return;
    const delay = next - performance.now();
    const now = () => {
      timer = 0;
      next = performance.now() + ms;
      void run();
    };
    if (delay <= 0) now();
    else timer = setTimeout(now, delay);
  };
}
