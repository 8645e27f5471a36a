// Small parts that several views draw: states, bars, links to jobs and groups, tables of facts, choices.
// They hold no state and ask for nothing.

import { copy } from "./ask.js";
import { h, lines } from "./dom.js";
import { address, ago, glyph, groupGlyph, groupName, kindWord, nameOfKey, short, STATES, UNKNOWN, wholeTime } from "./text.js";

/** @import { Child, Group, Job, State } from "./types.js" */

/** @param {string} state @param {Child} [words] */
export const stateMark = (state, words) =>
  h("span", { class: "state", "data-state": state }, h("span", { "aria-hidden": "true" }, glyph(state)), " ", words ?? state);

/** @param {Job} job */
export const jobLink = (job) =>
  h("a", { href: address("job", { key: job.key }), "data-key": job.key }, nameOfKey(job.key));

/** @param {string} key */
export const keyLink = (key) => h("a", { href: address("job", { key }), "data-key": key }, nameOfKey(key));

/**
 * How long ago something was, with the date and the zone on hover; `main` keeps it true.
 * @param {string | null | undefined} instant
 */
export const when = (instant) => (instant ? h("time", { datetime: instant, title: wholeTime(instant) }, ago(instant)) : UNKNOWN);

/**
 * What to say where there is nothing: why, and a command that changes it.
 * @param {string} words @param {string} [command]
 */
export const empty = (words, command) => h("div", { class: "empty" }, h("p", {}, words), command && copyable(command));

/**
 * A command, with a button that copies it.
 * @param {string} text
 */
export const copyable = (text) => h("span", { class: "command" }, h("code", {}, lines(text)),
  h("button", { type: "button", class: "quiet", "aria-label": `Copy ${text.split("\n")[0]}`, onclick: () => void copy(text) }, "copy"));

/**
 * Hands a text to the person as a file.
 * @param {string} name @param {string} text @param {string} [type]
 */
export function download(name, text, type = "text/plain") {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = h("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/**
 * Rows as CSV, as RFC 4180 writes it.
 * @param {string[]} names @param {Record<string, unknown>[]} rows
 */
export function csv(names, rows) {
  /** @param {unknown} value */
  const cell = (value) => {
    const text = value === null || value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [names, ...rows.map((row) => names.map((name) => row[name]))].map((line) => line.map(cell).join(",")).join("\r\n") + "\r\n";
}

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
 * A table with headings; numbers stand to the right, and a column without a value is left out.
 * @param {string} caption @param {string[]} heads @param {Child[][]} rows @param {Set<number>} [numbers]
 */
export function plainTable(caption, heads, rows, numbers = new Set()) {
  /** @param {number} place */
  const kind = (place) => (numbers.has(place) ? "number" : undefined);
  const places = [...heads.keys()].filter((place) => !rows.length || rows.some((row) => row[place] !== ""));
  return h(
    "div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h("table", {},
      h("thead", {}, h("tr", {}, places.map((place) => h("th", { scope: "col", class: kind(place) }, heads[place])))),
      h("tbody", {}, rows.map((row) => h("tr", {}, places.map((place) => h("td", { class: kind(place), "data-head": heads[place] }, row[place])))))));
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
 * A choice of the run, service or search that a view shows.
 * @param {Group[]} groups @param {string} chosen @param {(group: string) => void} changed @param {string} [all]
 */
export function groupChoice(groups, chosen, changed, all) {
  const one = groups.find((group) => group.group === chosen);
  const select = h("select", { onchange: () => changed(select.value), "aria-label": "Run, service or search" },
    all !== undefined && h("option", { value: "", selected: !chosen }, all),
    ["Run", "Service", "Search"].map((word) => {
      const some = groups.filter((group) => kindWord(group.kind) === word);
      return some.length > 0 && h("optgroup", { label: word === "Search" ? "Searches" : `${word}s` },
        some.map((group) => h("option", { value: group.group, selected: group.group === chosen }, `${groupGlyph(group)} ${groupName(group)}`)));
    }),
    chosen && !one && h("option", { value: chosen, selected: true }, chosen));
  return h("label", { class: "choice" }, h("span", {}, one ? kindWord(one.kind) : chosen ? kindWord(chosen) : "Show"), select);
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
