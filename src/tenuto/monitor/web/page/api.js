// Talks to the server: login, questions, actions, and the one stream of this tab.
// It draws nothing; views are told through `listen`.

/** @import { Delta, LogPart, Outcome } from "./types.js" */

const KEY = "tenuto-key";
const SILENCE_MS = 25_000;
const RETRY_MS = 1_000;
const HIDDEN_MS = 5_000;

/** An answer that is an error: its code, its sentence, and where in a filter it is. */
export class Refused extends Error {
  /** @param {number} status @param {{error?: string, message?: string, position?: number}} body */
  constructor(status, body) {
    super(body.message ?? `the server answered ${status}`);
    this.status = status;
    this.code = body.error ?? "";
    this.position = body.position;
  }
}

/** @typedef {{live: (state: string) => void, delta: (delta: Delta) => void, reset: () => void, log: (part: LogPart) => void, metrics: (keys: string[]) => void, loggedOut: () => void}} Listener */
/** @type {Listener | null} */
let listener = null;
/** @type {AbortController | null} */
let connection = null;
let last = "";
let log = "";
/** @type {string[]} */
let watched = [];
let wanted = false;
let generation = 0;

export const hasKey = () => localStorage.getItem(KEY) !== null;

/** @param {Listener} wantsNews */
export function listen(wantsNews) {
  listener = wantsNews;
}

/**
 * @param {string} path
 * @param {RequestInit} [options]
 */
async function ask(path, options = {}) {
  const headers = new Headers(options.headers);
  headers.set("X-Tenuto-Key", localStorage.getItem(KEY) ?? "");
  const answer = await fetch(path, { ...options, headers, credentials: "same-origin", cache: "no-store" });
  if (answer.status === 401) {
    forget();
    throw new Refused(401, { error: "unauthenticated", message: "You are logged out." });
  }
  return answer;
}

/**
 * An answer of the server; an error is raised as `Refused`.
 * @template Answer
 * @param {string} path
 * @param {Record<string, unknown>} [query]
 * @returns {Promise<Answer>}
 */
export async function get(path, query = {}) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (Array.isArray(value)) value.forEach((one) => search.append(name, String(one)));
    else if (value !== undefined && value !== null && value !== "") search.set(name, String(value));
  }
  const text = search.toString();
  const answer = await ask(`/api/${path}${text ? `?${text}` : ""}`);
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, body);
  return body;
}

/**
 * As `get`; None where no open door has such a thing.
 * @template Answer
 * @param {string} path
 * @param {Record<string, unknown>} [query]
 * @returns {Promise<Answer | null>}
 */
export async function getIfAny(path, query = {}) {
  try {
    return await get(path, query);
  } catch (error) {
    if (error instanceof Refused && error.status === 404) return null;
    throw error;
  }
}

/**
 * What became of an action on jobs, each named with the attempt that was seen.
 * @param {string} action
 * @param {{key: string, attempt: number}[]} jobs
 * @returns {Promise<Outcome[]>}
 */
export async function act(action, jobs) {
  const answer = await ask("/api/actions", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ action, jobs, dry_run: false }),
  });
  const body = await answer.json().catch(() => ({}));
  if (Array.isArray(body.outcomes)) return body.outcomes;
  throw new Refused(answer.status, body);
}

/**
 * Sends something; an error is raised as `Refused`.
 * @template Answer
 * @param {string} path @param {Record<string, unknown>} body @returns {Promise<Answer>}
 */
export async function post(path, body) {
  const answer = await ask(`/api/${path}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, found);
  return found;
}

/** @param {string} code */
export async function login(code) {
  const answer = await fetch("/api/login", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ code }),
  });
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, body);
  localStorage.setItem(KEY, body.key);
}

export async function logout() {
  await ask("/api/logout", { method: "POST" }).catch(() => undefined);
  forget();
}

function forget() {
  localStorage.removeItem(KEY);
  stop();
  listener?.live("logged out");
  listener?.loggedOut();
}

// Another tab of this browser logged in or out.
addEventListener("storage", (event) => {
  if (event.key === KEY && event.newValue === null) forget();
  else if (event.key === KEY && event.oldValue === null) location.reload();
});

// A browser allows six connections to a server over all tabs, so a tab that nobody sees lets go of its own.
let hiding = 0;
document.addEventListener("visibilitychange", () => {
  clearTimeout(hiding);
  if (document.hidden) hiding = setTimeout(() => connection?.abort(), HIDDEN_MS);
  else if (wanted && connection === null) void follow();
});

/** Begins to listen to the stream, and goes on until `stop`. */
export function start() {
  wanted = true;
  if (connection === null) void follow();
}

export function stop() {
  wanted = false;
  generation += 1;
  connection?.abort();
  connection = null;
}

/**
 * The log that the stream carries besides: the connection is made anew, from the last frame on.
 * @param {string} key @param {string} stream @param {number} offset
 */
export function followLog(key, stream, offset) {
  again(`${key}:${stream}:${offset}`);
}

/** @param {string} [wantedLog] */
export function again(wantedLog = "") {
  if (log === wantedLog && connection !== null) return;
  log = wantedLog;
  renew();
}

/**
 * The jobs and groups whose metrics the stream tells of.
 * @param {string[]} names
 */
export function followMetrics(names) {
  if (names.join(" ") === watched.join(" ")) return;
  watched = names;
  renew();
}

function renew() {
  if (!wanted) return;
  stop();
  start();
}

/** @param {number} delay */
const pause = (delay) => new Promise((resolve) => setTimeout(resolve, delay));

async function follow() {
  const mine = generation;
  while (wanted && mine === generation && !document.hidden) {
    connection = new AbortController();
    try {
      await readStream(connection, mine);
    } catch (error) {
      if (error instanceof Refused && error.status === 401) return;
    }
    if (mine !== generation) return;
    connection = null;
    if (!wanted || document.hidden) return;
    listener?.live("reconnecting");
    await pause(RETRY_MS);
  }
}

/** @param {AbortController} own @param {number} mine */
async function readStream(own, mine) {
  /** @type {Record<string, string>} */
  const headers = last ? { "Last-Event-ID": last } : {};
  const asked = [...(log ? [["log", log]] : []), ...watched.map((one) => ["metrics", one])];
  const question = new URLSearchParams(asked).toString();
  const answer = await ask(`/api/events${question && `?${question}`}`, { headers, signal: own.signal });
  if (!answer.ok || answer.body === null) throw new Refused(answer.status, {});
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  if (mine === generation) listener?.live("live");
  let rest = "";
  for (;;) {
    const silence = setTimeout(() => own.abort(), SILENCE_MS);
    const { done, value } = await reader.read().finally(() => clearTimeout(silence));
    if (done || mine !== generation) return;
    rest += value;
    const blocks = rest.split("\n\n");
    rest = blocks.pop() ?? "";
    for (const block of blocks) if (mine === generation) take(block);
  }
}

/** @param {string} block */
function take(block) {
  let event = "";
  let data = "";
  let id = "";
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) event = line.slice(6).trim();
    else if (line.startsWith("data:")) data += line.slice(5).trim();
    else if (line.startsWith("id:")) id = line.slice(3).trim();
  }
  if (id) last = id;
  if (event === "delta") listener?.delta(JSON.parse(data));
  else if (event === "reset") listener?.reset();
  else if (event === "metrics") listener?.metrics(JSON.parse(data).keys);
  else if (event === "log") {
    const part = /** @type {LogPart} */ (JSON.parse(data));
    if (log.startsWith(`${part.key}:${part.stream}:`)) log = `${part.key}:${part.stream}:${part.next}`;
    listener?.log(part);
  }
}
