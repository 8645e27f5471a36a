// One job: its facts on the left, its log on the right; what can be done to the attempt that is shown.
// It asks for the job again whenever the stream names it.

import { again, followMetrics, get, Refused } from "./api.js";
import { ACTIONS, actionWord, ask, copy, fits, refusal } from "./ask.js";
import { jobCurves } from "./curves.js";
import { h, lines, put } from "./dom.js";
import { LogPanel } from "./log.js";
import { bar, copyable, jobLink, plainTable, stateMark, throttled, when } from "./parts.js";
import { address, attemptWords, duration, energy, filterValue, kindWord, nameOfKey, percent, size, stateWords } from "./text.js";

/** @import { About, Attempt, Child, Delta, Job, JobDetail, Place, View, Why } from "./types.js" */

const MOST_LINKED = 12;
const MOST_STEPS = 5;

/** @param {Place} place @returns {Promise<View>} */
export async function job({ main, query, about }) {
  const key = query.get("key") ?? "";
  const panel = new JobPanel(key, about, { stream: query.get("stream") ?? undefined, line: Number(query.get("line")) || 0 });
  await panel.load();
  put(main, h("p", { class: "crumbs" }, h("a", { href: address("jobs", { group: panel.found?.group }) }, "‹ Jobs")), panel.element);
  panel.begin();
  return {
    title: nameOfKey(key),
    close: () => { panel.close(); again(); },
    reset: () => panel.soon(),
    log: (part) => panel.log.take(part),
    delta: (delta) => panel.delta(delta),
    metrics: () => panel.shown?.soon(),
    press: (pressed) => {
      const action = new Map([["K", "Kill"], ["R", "Retry"], ["D", "Clean"]]).get(pressed);
      if (pressed === "l") panel.log.lines.focus();
      else if (pressed === "w") panel.facts.focus();
      else if (pressed === "Escape") history.back();
      else if (action && panel.found && !about.read_only && fits(action, panel.found)) void ask(action, [panel.found]);
      else return false;
      return true;
    },
  };
}

/** One job: what it is in one line, its facts, its curves, its log. A page of its own, or beside the list. */
export class JobPanel {
  /** @param {string} key @param {About} about @param {{isSmall?: boolean, stream?: string, line?: number}} [options] */
  constructor(key, about, options = {}) {
    this.key = key;
    this.about = about;
    this.options = options;
    /** @type {JobDetail | null} */
    this.found = null;
    /** @type {Step[]} */
    this.steps = [];
    this.isClosed = false;
    this.log = new LogPanel(key, options.line ?? 0);
    this.heading = h(options.isSmall ? "h2" : "h1", {});
    this.header = h("div", { class: "bar header" });
    this.buttons = h("div", { class: "buttons", role: "group", "aria-label": "Actions" });
    this.facts = h("div", { class: "facts", tabindex: -1 });
    this.curves = h("div", { class: "curves" });
    this.element = h("div", { class: options.isSmall ? "panel small" : "panel" },
      h("div", { class: "bar" }, this.heading, this.buttons), this.header,
      h("div", { class: "columns job" }, h("div", {}, this.facts, this.curves), this.log.element));
    this.soon = throttled(() => this.load().then(() => this.explain()).catch(() => undefined), 500);
  }

  async load() {
    try {
      this.found = /** @type {JobDetail} */ (await get("job", { key: this.key }));
      this.draw();
    } catch (error) {
      if (!(error instanceof Refused) || error.status !== 404 || !this.found) throw error;
      put(this.buttons, h("p", { class: "trouble" }, "This job is gone."));
    }
  }

  /** Shows the log and what explains the job; once the panel is in the document. */
  begin() {
    if (!this.found) return;
    const isBad = this.found.state === "error" && this.found.attempt > 0;
    this.log.show(this.options.stream ?? (isBad ? "err" : "out"), this.found, !this.options.stream);
    void this.explain().catch(() => undefined);
    this.shown = jobCurves(this.curves, this.key);
    followMetrics([this.key]);
  }

  async explain() {
    if (!this.found) return;
    this.steps = await trail(this.found);
    this.draw();
  }

  close() {
    this.isClosed = true;
    this.log.close();
    this.shown?.close();
    followMetrics([]);
  }

  draw() {
    const job = this.found;
    if (!job || this.isClosed) return;
    put(this.heading, nameOfKey(this.key));
    drawButtons(this.buttons, job, this.about.read_only, this.soon);
    put(this.header, headLine(job));
    const open = [...this.facts.querySelectorAll("details")].map((one) => /** @type {[string, boolean]} */ ([one.getAttribute("data-part") ?? "", one.open]));
    put(this.facts, factList(job, this.steps), more(job, new Map(open)));
    this.log.tell(job);
  }

  /** @param {Delta} delta */
  delta(delta) {
    const now = delta.jobs.find((one) => one.key === this.key);
    if (now && this.found) {
      const isOther = now.attempt !== this.found.attempt;
      this.found = { ...this.found, ...now };
      this.draw();
      if (isOther) void this.log.load();
      this.soon();
      this.shown?.soon();
    } else if (delta.gone.some((one) => one.key === this.key) || (delta.many ?? []).includes(this.found?.group ?? "")) this.soon();
  }
}

/** @param {JobDetail} job what a person wants to know of it first, in one line */
const headLine = (job) => [
  h("span", { class: "badge big", "data-field": "state" }, stateMark(job.state, stateWords(job).replace(/^\S+ /, ""))),
  h("span", { "data-field": "attempt" }, attemptWords(job.attempt, job.attempt > 1 ? job.most_attempts : null)),
  job.progress !== null && h("span", { "data-field": "progress" }, bar(job.progress, "progress"), ` ${percent(job.progress)} `, job.progress_desc ?? ""),
  job.eta_s !== null && h("span", {}, `ETA ${duration(job.eta_s)}`),
  h("span", { "data-field": "group" }, `${kindWord(job.kind)} `, h("a", { href: address("jobs", { group: job.group }) }, job.group.slice(job.group.indexOf(":") + 1))),
  job.where && h("span", { "data-field": "where" }, `on ${job.where}`),
  job.duration_s !== null && h("span", { "data-field": "took" }, `${job.state === "running" ? "for" : "took"} ${duration(job.duration_s)}`),
  h("span", { "data-field": "times", class: "soft" }, job.ended ? ["ended ", when(job.ended)] : job.started ? ["started ", when(job.started)] : job.submitted ? ["submitted ", when(job.submitted)] : ""),
  h("span", { class: "copied" }, h("code", { "data-field": "id", title: job.id }, job.id), copier("id", job.id)),
  job.directory && h("span", { class: "copied" }, h("code", { "data-field": "directory", title: job.directory }, job.directory), copier("directory", job.directory)),
];

/** @param {string} what @param {string} text */
const copier = (what, text) => h("button", { type: "button", class: "quiet", "aria-label": `Copy ${what}`, title: `Copy ${what}`, onclick: () => void copy(text) }, "copy");

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

/** @param {Step[]} steps @param {string | null} message */
const trailList = ([own, ...others], message) => own && [
  (message && !own.why.because.includes(message) ? [message, ...own.why.because] : own.why.because).map((line) => h("div", {}, line)),
  others.length > 0 && h("ol", { class: "plain steps" }, others.map(({ job, why }) => h("li", {}, "← ", stateMark(job.state, jobLink(job)), " ", h("span", { class: "soft" }, why.because.join(" ← "))))),
];

/** @param {HTMLElement} buttons @param {JobDetail} job @param {boolean} readOnly @param {() => void} load */
function drawButtons(buttons, job, readOnly, load) {
  const news = `${job.state} ${job.attempt} ${readOnly} ${stateWords(job)}`;
  if (buttons.dataset.drawn === news) return;
  buttons.dataset.drawn = news;
  const had = document.activeElement instanceof HTMLElement && buttons.contains(document.activeElement) ? document.activeElement.textContent : null;
  put(buttons, readOnly ? h("span", { class: "soft" }, "read only") : ACTIONS.map((action) => h("button", {
    type: "button", disabled: !fits(action, job), title: refusal(action, job) || undefined, onclick: () => void ask(action, [job]).then((done) => (done ? load() : undefined)),
  }, actionWord(action, [job]))));
  if (had) [...buttons.querySelectorAll("button")].find((one) => one.textContent === had)?.focus();
}

/** @param {JobDetail} job @param {Step[]} steps */
function factList(job, steps) {
  const why = steps[0]?.why ?? null;
  /** @type {[name: string, label: string, value: Child][]} */
  const rows = [
    ["reason", "reason", job.state === "error" && job.reason ? job.reason.toUpperCase() : null],
    ["because", "why", why ? trailList(steps, job.message) : job.message],
    ["nearest", "nearest", why?.nearest ? nearest(why.nearest) : null],
    ["code", "code", why?.code.map((line) => h("div", {}, line))],
    ["next", "next", why?.next.map((line) => h("div", {}, copyable(line)))],
    ["alarm", "alarm", job.alarm],
    ["tags", "tags", siblings(job)],
    ["task", "task", h("a", { href: address("jobs", { group: job.group, filter: `task=${filterValue(job.task)}` }) }, job.task)],
    ["waited", "waited", job.submitted && job.started ? duration((Date.parse(job.started) - Date.parse(job.submitted)) / 1000) : null],
    ["owner", "owner", job.owner],
    ["needs", "needs", linked(job.dependencies)],
    ["feeds", "feeds", linked(job.dependents)],
    ["lineage", "lineage", job.lineage.map((one) => h("div", {}, h("a", { href: address("job", { key: one.key }) }, nameOfKey(one.key)), ` ${one.objective ?? ""} `,
      one.diff && h("details", {}, h("summary", {}, "change"), h("pre", {}, lines(one.diff)))))],
    ["energy", "energy", job.carbon?.energy_kwh === undefined ? (job.energy_kwh === null ? null : energy(job.energy_kwh))
      : `${energy(job.carbon.energy_kwh)} · ${Number(((job.carbon.co2_kg ?? 0) * 1000).toPrecision(2))} g CO2 ${job.carbon.region ?? ""}`],
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

/** @param {JobDetail} job */
const siblings = (job) => [...Object.entries(job.tags)].map(([name, value]) =>
  h("a", { class: "chip", href: address("jobs", { group: job.group, filter: `${filterValue(name)}=${filterValue(value)}` }) }, `${name}=${value}`));

/** @param {Job[]} jobs */
function linked(jobs) {
  const shown = jobs.slice(0, MOST_LINKED).map((one) => h("div", {}, stateMark(one.state, jobLink(one))));
  return jobs.length > MOST_LINKED ? [...shown, h("div", { class: "soft" }, `and ${jobs.length - MOST_LINKED} more`)] : shown;
}

/** @param {JobDetail} job @param {Map<string, boolean>} open */
function more(job, open) {
  /** @param {string} name @param {string} label @param {Child} content @param {boolean} [is] */
  const part = (name, label, content, is = false) =>
    h("details", { "data-part": name, open: open.get(name) ?? is }, h("summary", {}, label), content);
  const parameters = Object.entries(job.parameters);
  const made = Object.entries(job.provenance ?? {});
  const isFlat = job.result !== null && typeof job.result === "object" && !Array.isArray(job.result) && Object.values(job.result).every((one) => typeof one !== "object" || one === null);
  return [
    job.result !== null && job.result !== undefined && part("result", "Result", isFlat ? values(Object.entries(/** @type {object} */ (job.result))) : h("pre", {}, lines(JSON.stringify(job.result, null, 2))), true),
    parameters.length > 0 && part("parameters", `Parameters (${parameters.length})`, values(parameters), true),
    job.attempts.length > 0 && part("attempts", `Attempts (${job.attempts.length})`, plainTable("Attempts", ["", "state", "why", "started", "took", "host", "CPU", "memory"], job.attempts.map(attemptRow)), job.attempts.length > 1),
    made.length > 0 && part("provenance", "Made of", values(made)),
    job.events.length > 0 && part("events", `Events (${job.events.length})`, h("ol", { class: "plain events" }, job.events.map((event) => h("li", {}, JSON.stringify(event))))),
    job.commands.length > 0 && part("commands", "Commands", h("div", {}, job.commands.map((one) => h("div", {}, copyable(one))))),
    job.runs.length > 0 && part("runs", `Runs (${job.runs.length})`, h("ul", { class: "plain" }, job.runs.map((run) => h("li", {}, run)))),
  ];
}

/** @param {[string, unknown][]} entries */
const values = (entries) => h("dl", { class: "tight" }, entries.map(([name, value]) =>
  h("div", {}, h("dt", {}, name), h("dd", {}, typeof value === "number" ? String(value) : shownValue(value)))));

/** @param {Attempt} one @returns {Child[]} */
const attemptRow = (one) => [
  String(one.attempt), stateMark(one.state),
  [one.reason?.toUpperCase(), one.message, one.exit_code ? `exit ${one.exit_code}` : "", one.signal ? `signal ${one.signal}` : ""].filter(Boolean).join(" · "),
  when(one.started),
  one.started && one.ended ? duration((Date.parse(one.ended) - Date.parse(one.started)) / 1000) : "",
  one.host ?? "",
  typeof one.usage.user_s === "number" ? duration(one.usage.user_s + (one.usage.system_s ?? 0)) : "",
  typeof one.usage.max_rss_bytes === "number" ? size(one.usage.max_rss_bytes) : "",
];
