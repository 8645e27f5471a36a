// Values in words: states, durations, sizes, instants, addresses of views.
// Pure: it touches no document.

/** @import { Group, Job, State } from "./types.js" */

/** @type {State[]} */
export const STATES = ["done", "running", "scheduled", "ready", "waiting", "unscheduled", "error"];

const GLYPHS = new Map([
  ["running", "▶"], ["done", "✓"], ["error", "✗"], ["waiting", "…"], ["ready", "○"], ["scheduled", "◔"],
  ["unscheduled", "·"],
]);

/** @param {string} state */
export const glyph = (state) => GLYPHS.get(state) ?? "·";

/** @type {Map<string, {attempt: number, state: string, words: string}>} */
const pending = new Map();

/**
 * A job that was acted on says so until its state changes.
 * @param {Job | {key: string, attempt: number, state?: string}} job @param {string} words
 */
export const awaitChange = (job, words) => pending.set(job.key, { attempt: job.attempt, state: "state" in job ? job.state ?? "" : "", words });

/** @param {Job} job */
export function stateWords(job) {
  const awaited = pending.get(job.key);
  if (awaited && awaited.attempt === job.attempt && (!awaited.state || awaited.state === job.state)) return `${glyph(job.state)} ${awaited.words}`;
  pending.delete(job.key);
  const own = job.status && job.status.toLowerCase() !== job.state ? ` (${job.status})` : "";
  return `${glyph(job.state)} ${job.state}${own}`;
}

export const UNKNOWN = "–";

/**
 * A duration in at most seven characters: 85ms 4.2s 42s 3m07s 2h05m 4d03h.
 * @param {number | null | undefined} seconds
 */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return UNKNOWN;
  const positive = Math.max(seconds, 0);
  if (positive < 0.9995) return `${Math.round(positive * 1000)}ms`;
  if (positive < 9.95) return `${positive.toFixed(1)}s`;
  const whole = Math.round(positive);
  /** @param {number} number */
  const two = (number) => String(Math.floor(number)).padStart(2, "0");
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m${two(whole % 60)}s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)}h${two((whole % 3600) / 60)}m`;
  return `${Math.floor(whole / 86400)}d${two((whole % 86400) / 3600)}h`;
}

/** @param {number | null | undefined} number */
export function short(number) {
  if (number === null || number === undefined || !Number.isFinite(number)) return UNKNOWN;
  if (Number.isInteger(number)) return number.toLocaleString("en");
  return String(Number(number.toPrecision(5)));
}

/** @param {number} bytes */
export function size(bytes) {
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (bytes < 1000) return `${Number(bytes.toPrecision(3))} ${unit}`;
    bytes /= 1000;
  }
  return `${Number(bytes.toPrecision(3))} TB`;
}

/** @param {number | null | undefined} fraction */
export const percent = (fraction) =>
  fraction === null || fraction === undefined ? "" : `${Math.floor(fraction * 100)} %`;

/** @param {number | null | undefined} kwh */
export const energy = (kwh) =>
  kwh === null || kwh === undefined ? UNKNOWN : kwh < 0.1 ? `${Number((kwh * 1000).toPrecision(2))} Wh` : `${kwh.toFixed(2)} kWh`;

const ZONE = "tenuto-zone";
/** Instants are shown in the zone of this machine, or in UTC if the person chose it. */
export const zone = () => (localStorage.getItem(ZONE) === "UTC" ? "UTC" : undefined);
export const setZone = (/** @type {boolean} */ isUtc) => localStorage.setItem(ZONE, isUtc ? "UTC" : "local");

/** @param {string | number | null | undefined} instant @returns {Date | null} */
function dated(instant) {
  const at = instant === null || instant === undefined ? null : new Date(instant);
  return at === null || Number.isNaN(at.getTime()) ? null : at;
}

/** @param {string | number | null | undefined} instant */
export function clock(instant) {
  const at = dated(instant);
  if (at === null) return UNKNOWN;
  const time = at.toLocaleTimeString("en-GB", { timeZone: zone() });
  return Math.abs(Date.now() - at.getTime()) < 20 * 3600e3 ? time : `${at.toLocaleDateString("en-CA", { timeZone: zone() })} ${time}`;
}

/**
 * An instant with its date and zone.
 * @param {string | number | null | undefined} instant
 */
export function wholeTime(instant) {
  const at = dated(instant);
  return at === null ? UNKNOWN : `${at.toLocaleDateString("en-CA", { timeZone: zone() })} ${at.toLocaleTimeString("en-GB", { timeZone: zone(), timeZoneName: "short" })}`;
}

/**
 * How long ago something was: `3 min ago`, from a week on its date.
 * @param {string | number | null | undefined} instant
 */
export function ago(instant) {
  const at = dated(instant);
  if (at === null) return UNKNOWN;
  const seconds = Math.round((Date.now() - at.getTime()) / 1000);
  const [past, size] = [seconds >= 0, Math.abs(seconds)];
  if (size >= 7 * 86400) return clock(instant);
  const words = size < 5 ? "now" : size < 60 ? `${size} s` : size < 3600 ? `${Math.floor(size / 60)} min` : size < 86400 ? `${Math.floor(size / 3600)} h` : `${Math.floor(size / 86400)} d`;
  return words === "now" ? words : past ? `${words} ago` : `in ${words}`;
}

/** @param {string} task */
export const shortTask = (task) => task.slice(task.lastIndexOf(".") + 1);

/**
 * A job by its key, with its task where its name does not say it: `Train 1902e8bd`, `packing#12`.
 * @param {string} key
 */
export function nameOfKey(key) {
  const slash = key.lastIndexOf("/");
  const [task, id] = [key.slice(key.indexOf(":") + 1, slash), key.slice(slash + 1)];
  return key.startsWith("experiments:") ? `${shortTask(task)} ${id.slice(0, 8)}` : `${task}#${id}`;
}

/**
 * ▶ at work, ✗ with failures, ✓ else: a search ends well whatever its candidates did.
 * @param {Group} group
 */
export const groupGlyph = (group) =>
  group.live ? "▶" : group.take_up || (group.kind === "experiment" && group.counts.error > 0) || /fail|error|lost|interrupt/i.test(group.state) ? "✗" : "✓";

/** @param {string} kind what a group is called: a run, a service or a search */
export const kindWord = (kind) => (kind === "service" || kind.startsWith("service:") ? "Service" : kind === "search" || kind.startsWith("search:") ? "Search" : "Run");

/** @param {Group} group */
export const groupName = (group) => (group.run ? `${group.name} ${group.run}` : group.name);

/**
 * The address of a view.
 * @param {string} view
 * @param {Record<string, string | null | undefined>} [query]
 */
export function address(view, query = {}) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value) search.set(name, value);
  const text = search.toString();
  return `#/${view}${text ? `?${text}` : ""}`;
}

/**
 * A value of a filter, quoted where the language asks for it.
 * @param {unknown} value
 */
export function filterValue(value) {
  const text = String(value);
  return /^[\w.+-]+$/.test(text) ? text : `"${text.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`;
}

const VALUE = /"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s()"'=!<>~]+/.source;
const ENDS = /(?![^\s()"'=!<>~])/.source;
const TERM = new RegExp(`\\s*(?:(\\(|not${ENDS})|(\\)|(?:and|or)${ENDS})|(${VALUE})(\\s*(?:[!<>]?=|[<>~])\\s*(?:${VALUE}))?)`, "giy");

/** What was searched for, as a filter of commands, which take no plain words. @param {string} searched */
export function filterOf(searched) {
  let [written, at, isAfter] = ["", 0, false];
  for (const [all, before, other, value, compared] of searched.matchAll(TERM)) {
    written += `${isAfter && (before || value) ? " and" : ""} ${before ?? other ?? (compared ? value + compared : `*~${value}`)}`;
    isAfter = Boolean(value) || other === ")";
    at += all.length;
  }
  return searched.slice(at).trim() ? searched : written.trim();
}

/**
 * Which attempt it is, and of how many: of a job that a person tried more often, only which.
 * @param {number} attempt @param {number | null} most
 */
export function attemptWords(attempt, most) {
  if (!attempt) return "never started";
  return most !== null && attempt <= most ? `attempt ${attempt} of ${most}` : `attempt ${attempt}`;
}
