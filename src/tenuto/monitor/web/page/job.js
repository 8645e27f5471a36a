// One job: its facts on the left, its log on the right; what can be done to the attempt that is shown.
// It asks for the job again whenever the stream names it.

import { again, get, Refused } from "./api.js";
import { ACTIONS, ask, copy, fits } from "./ask.js";
import { h, lines, put } from "./dom.js";
import { LogPanel } from "./log.js";
import { bar, jobLink, plainTable, stateMark, throttled } from "./parts.js";
import { address, attemptWords, clock, duration, energy, filterValue, nameOfKey, percent, stateWords } from "./text.js";

/** @import { Attempt, Child, Job, JobDetail, Place, View, Why } from "./types.js" */

const MOST_LINKED = 12;
const MOST_STEPS = 5;

/** @param {Place} place @returns {Promise<View>} */
export async function job({ main, query, about }) {
  const key = query.get("key") ?? "";
  let found = /** @type {JobDetail} */ (await get("job", { key }));
  const log = new LogPanel(found);
  const facts = h("div", { class: "facts" });
  const heading = h("h1", {});
  const buttons = h("div", { class: "buttons", role: "group", "aria-label": "Actions" });
  /** @type {Step[]} */
  let steps = [];
  const draw = () => {
    put(heading, nameOfKey(key));
    drawButtons(buttons, found, about.read_only, load);
    const open = [...facts.querySelectorAll("details[open]")].map((one) => one.getAttribute("data-part"));
    put(facts, factList(found, steps), more(found, open));
    log.setAttempts(found.earlier_logs);
  };
  const load = async () => {
    try {
      found = await get("job", { key });
      draw();
      steps = await trail(found);
      draw();
    } catch (error) {
      if (error instanceof Refused && error.status === 404) put(buttons, h("p", { class: "trouble" }, "This job is gone."));
    }
  };
  draw();
  put(main, h("p", {}, h("a", { href: address("jobs", { group: found.group }) }, "‹ Jobs")), heading, buttons, h("div", { class: "columns job" }, facts, log.element));
  void log.load();
  void trail(found).then((answer) => { steps = answer; draw(); }, () => undefined);
  const soon = throttled(load, 500);
  return {
    title: nameOfKey(key),
    close: () => { log.close(); again(); },
    reset: () => { void load(); },
    log: (part) => log.take(part),
    delta: (delta) => {
      const now = delta.jobs.find((one) => one.key === key);
      if (now) {
        const isOther = now.attempt !== found.attempt;
        found = { ...found, ...now };
        draw();
        if (isOther) void log.load();
        soon();
      } else if (delta.gone.some((one) => one.key === key) || (delta.many ?? []).includes(found.group)) soon();
    },
  };
}

/** @typedef {{job: JobDetail, why: Why}} Step */

/**
 * Why a job is where it is: its own reasons, then those of the job that kept it, and so on.
 * @param {JobDetail} job @returns {Promise<Step[]>}
 */
async function trail(job) {
  /** @type {Step[]} */
  const steps = [];
  /** @type {JobDetail | null} */
  let now = job;
  while (now && steps.length < MOST_STEPS) {
    steps.push({ job: now, why: await get("why", { key: now.key }) });
    /** @type {Job | undefined} */
    const keeps = now.state === "done" ? undefined : now.dependencies.find((one) => one.state === "error") ?? now.dependencies.find((one) => one.state !== "done");
    now = keeps && !steps.some((step) => step.job.key === keeps.key) ? await get("job", { key: keeps.key }) : null;
  }
  return steps;
}

/** @param {Step[]} steps */
const trailList = ([own, ...others]) => own && [
  own.why.because.filter((line) => line !== own.job.message).map((line) => h("div", {}, line)),
  others.length > 0 && h("ol", { class: "plain steps" }, others.map(({ job, why }) => h("li", {}, "← ", stateMark(job.state, jobLink(job)), " ", h("span", { class: "soft" }, why.because.join(" ← "))))),
];

/** @param {HTMLElement} buttons @param {JobDetail} job @param {boolean} readOnly @param {() => Promise<void>} load */
function drawButtons(buttons, job, readOnly, load) {
  const news = `${job.state} ${job.attempt} ${readOnly}`;
  if (buttons.dataset.drawn === news) return;
  buttons.dataset.drawn = news;
  const had = document.activeElement instanceof HTMLElement && buttons.contains(document.activeElement) ? document.activeElement.textContent : null;
  put(buttons, readOnly ? h("span", { class: "soft" }, "read only") : ACTIONS.map((action) => h("button", {
    type: "button", disabled: !fits(action, job), onclick: () => void ask(action, [job]).then((done) => (done ? load() : undefined)),
  }, action)));
  if (had) [...buttons.querySelectorAll("button")].find((one) => one.textContent === had)?.focus();
}

/** @param {JobDetail} job @param {Step[]} steps */
function factList(job, steps) {
  const why = steps[0]?.why ?? null;
  /** @type {[name: string, label: string, value: Child][]} */
  const rows = [
    ["state", "state", stateMark(job.state, stateWords(job).replace(/^\S+ /, ""))],
    ["attempt", "attempt", attemptWords(job.attempt, job.most_attempts)],
    ["reason", "reason", job.state === "error" && job.reason ? job.reason.toUpperCase() : null],
    ["message", "message", job.message],
    ["because", "because", why && (why.because.some((line) => line !== job.message) || steps.length > 1) ? trailList(steps) : null],
    ["nearest", "nearest", why?.nearest ? nearest(why.nearest) : null],
    ["code", "code", why?.code.map((line) => h("div", {}, line))],
    ["next", "next", why?.next.map((line) => h("div", {}, command(line)))],
    ["progress", "progress", job.progress === null ? null : [bar(job.progress, "progress"), ` ${percent(job.progress)} `, job.progress_desc ?? "", job.eta_s === null ? "" : `  ETA ${duration(job.eta_s)}`]],
    ["alarm", "alarm", job.alarm],
    ["tags", "tags", siblings(job)],
    ["task", "task", h("a", { href: address("jobs", { group: job.group, filter: `task=${filterValue(job.task)}` }) }, job.task)],
    ["id", "id", h("code", {}, job.id)],
    ["group", "group", h("a", { href: address("jobs", { group: job.group }) }, job.group.slice(job.group.indexOf(":") + 1))],
    ["times", "times", times(job)],
    ["where", "where", job.where],
    ["owner", "owner", job.owner],
    ["needs", "needs", linked(job.dependencies)],
    ["feeds", "feeds", linked(job.dependents)],
    ["energy", "energy", job.carbon?.energy_kwh === undefined ? (job.energy_kwh === null ? null : energy(job.energy_kwh))
      : `${energy(job.carbon.energy_kwh)} · ${Number(((job.carbon.co2_kg ?? 0) * 1000).toPrecision(2))} g CO2 ${job.carbon.region ?? ""}`],
    ["directory", "directory", job.directory && h("code", {}, job.directory)],
  ];
  return h("dl", {}, rows.filter(([, , value]) => value && (!Array.isArray(value) || value.length)).map(([name, label, value]) =>
    h("div", {}, h("dt", {}, label), h("dd", { "data-field": name }, value))));
}

/** @param {NonNullable<Why["nearest"]>} found */
const nearest = (found) => [
  h("a", { href: address("job", { key: `experiments:${found.task}/${found.id}` }) }, found.id.slice(0, 8)),
  found.changed.length ? ", differs in " : "",
  found.changed.map((one) => h("span", { class: "chip" }, `${one.parameter} ${shownValue(one.here)} ← ${shownValue(one.there)}`)),
];

/** @param {unknown} value */
const shownValue = (value) => (value === null || value === undefined ? "not set" : typeof value === "string" ? value : JSON.stringify(value));

/**
 * A command, with a button that copies it.
 * @param {string} text
 */
const command = (text) => h("span", { class: "command" }, h("code", {}, lines(text)),
  h("button", { type: "button", class: "quiet", "aria-label": `Copy ${text.split("\n")[0]}`, onclick: () => void copy(text) }, "copy"));

/** @param {JobDetail} job */
const siblings = (job) => [...Object.entries(job.tags)].map(([name, value]) =>
  h("a", { class: "chip", href: address("jobs", { group: job.group, filter: `${filterValue(name)}=${filterValue(value)}` }) }, `${name}=${value}`));

/** @param {JobDetail} job */
const times = (job) => [
  job.submitted && `submitted ${clock(job.submitted)}`, job.started && `started ${clock(job.started)}`,
  job.ended && `ended ${clock(job.ended)}`, job.duration_s !== null && `took ${duration(job.duration_s)}`,
].filter(Boolean).join(" · ");

/** @param {Job[]} jobs */
function linked(jobs) {
  const shown = jobs.slice(0, MOST_LINKED).map((one) => h("div", {}, stateMark(one.state, jobLink(one))));
  return jobs.length > MOST_LINKED ? [...shown, h("div", { class: "soft" }, `and ${jobs.length - MOST_LINKED} more`)] : shown;
}

/** @param {JobDetail} job @param {(string | null)[]} open */
function more(job, open) {
  /** @param {string} name @param {string} label @param {Child} content @param {boolean} [is] */
  const part = (name, label, content, is = false) =>
    h("details", { "data-part": name, open: is || open.includes(name) }, h("summary", {}, label), content);
  const parameters = Object.entries(job.parameters);
  return [
    parameters.length > 0 && part("parameters", `Parameters (${parameters.length})`, h("dl", { class: "tight" }, parameters.map(([name, value]) =>
      h("div", {}, h("dt", {}, name), h("dd", {}, typeof value === "string" ? value : JSON.stringify(value)))))),
    job.attempts.length > 0 && part("attempts", `Attempts (${job.attempts.length})`, plainTable("Attempts", ["", "state", "started", "took", "why", "host"], job.attempts.map(attemptRow))),
    job.result !== null && job.result !== undefined && part("result", "Result", h("pre", {}, lines(JSON.stringify(job.result, null, 2)))),
    job.events.length > 0 && part("events", `Events (${job.events.length})`, h("ol", { class: "plain events" }, job.events.map((event) => h("li", {}, JSON.stringify(event))))),
    job.commands.length > 0 && part("commands", "Commands", h("div", {}, job.commands.map((one) => h("div", {}, command(one))))),
    job.runs.length > 0 && part("runs", `Runs (${job.runs.length})`, h("ul", { class: "plain" }, job.runs.map((run) => h("li", {}, run)))),
  ];
}

/** @param {Attempt} one @returns {Child[]} */
const attemptRow = (one) => [
  String(one.attempt), stateMark(one.state), clock(one.started),
  one.started && one.ended ? duration((Date.parse(one.ended) - Date.parse(one.started)) / 1000) : "",
  [one.reason?.toUpperCase(), one.message, one.exit_code ? `exit ${one.exit_code}` : "", one.signal ? `signal ${one.signal}` : ""].filter(Boolean).join(" · "),
  one.host ?? "",
];
