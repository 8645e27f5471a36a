// Two to six jobs side by side: what differs in their parameters, what they returned, what they wrote.
// It asks once and again when one of them changes.

import { get, followMetrics } from "./api.js";
import { coloured, h, put } from "./dom.js";
import { CurvePlot } from "./curves.js";
import { empty, jobLink, stateMark, throttled } from "./parts.js";
import { COLOURS, isLessBetter } from "./plot.js";
import { duration, nameOfKey, short, stateWords } from "./text.js";

/** @import { Child, JobDetail, LogPart, Metrics, Place, View } from "./types.js" */

const TAIL = 16_384;
const [FEWEST, MOST] = [2, 6];

/** @param {Place} place @returns {Promise<View>} */
export async function compare({ main, query }) {
  const keys = [...new Set(query.getAll("key"))].slice(0, MOST);
  const table = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Differences" });
  const curves = h("div", { class: "cards" });
  const logs = h("div", { class: "logs" });
  put(main, h("h1", {}, `Compare ${keys.length} jobs`));
  if (keys.length < FEWEST) {
    main.append(empty("Mark two to six jobs in the list of jobs, and press x.", undefined));
    return {};
  }
  let isAll = false;
  const box = h("input", { type: "checkbox", onchange: () => { isAll = box.checked; void load(); } });
  /** @type {Map<string, CurvePlot>} */
  const plots = new Map();
  const load = async () => {
    const jobs = /** @type {JobDetail[]} */ (await Promise.all(keys.map((key) => get("job", { key }))));
    put(table, differences(jobs, isAll));
  };
  const loadLogs = async () => {
    const found = await Promise.all(keys.map(async (key) => {
      const job = /** @type {JobDetail} */ (await get("job", { key }));
      const stream = job.state === "error" ? "err" : "out";
      return { key, stream, part: /** @type {LogPart} */ (await get("log", { key, stream, tail: TAIL })) };
    }));
    put(logs, found.map(({ key, stream, part }) => h("section", { "aria-label": `Log of ${nameOfKey(key)}` }, h("h2", {}, `${nameOfKey(key)} ${stream}`),
      h("div", { class: "log", role: "log", tabindex: 0 }, part.text.split("\n").slice(-200).map((line) => h("div", { class: "plainline" }, coloured(line || " ")))))));
  };
  const loadCurves = async () => {
    const found = /** @type {Metrics} */ (await get("metrics", { key: keys, points: 1000 }));
    for (const name of found.names) {
      const plot = plots.get(name) ?? new CurvePlot(name, 200);
      if (!plots.has(name)) curves.append(h("section", { class: "card", "aria-label": name }, h("h2", {}, name), plot.element));
      plots.set(name, plot);
      plot.show(found.jobs.flatMap((job) => job.curves.filter((one) => one.name === name).map((one) =>
        ({ key: job.key, label: nameOfKey(job.key), colour: COLOURS[keys.indexOf(job.key) % COLOURS.length] ?? "", x: one.steps, y: one.values, raw: one.values }))), { name });
    }
  };
  main.append(h("label", { class: "choice" }, box, "also what is the same"), table, curves, logs);
  await load();
  await Promise.all([loadLogs(), loadCurves().catch(() => undefined)]);
  const again = throttled(() => load().catch(() => undefined), 1000);
  const drawAgain = throttled(() => loadCurves().catch(() => undefined), 1000);
  followMetrics(keys);
  return {
    title: "Compare",
    delta: (delta) => { if (delta.jobs.some((job) => keys.includes(job.key))) again(); },
    metrics: drawAgain,
    close: () => { followMetrics([]); for (const plot of plots.values()) plot.close(); },
  };
}

/** @param {JobDetail[]} jobs @param {boolean} isAll */
function differences(jobs, isAll) {
  /** @type {[string, (job: JobDetail) => unknown][]} */
  const facts = [
    ["task", (job) => job.task], ["state", stateWords], ["reason", (job) => job.reason], ["attempt", (job) => job.attempt], ["took", (job) => duration(job.duration_s)], ["host", (job) => job.where], ["message", (job) => job.message],
    ...named(jobs, "", (job) => job.tags), ...named(jobs, "", (job) => job.parameters), ...named(jobs, "result.", (job) => (job.result !== null && typeof job.result === "object" ? /** @type {Record<string, unknown>} */ (job.result) : { value: job.result })),
  ];
  const rows = [...new Map(facts)].map(([name, of]) => ({ name, cells: jobs.map((job) => of(job)) })).filter(({ cells }) => isAll || new Set(cells.map((one) => JSON.stringify(one ?? null))).size > 1);
  return h("table", { class: "compared" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, ""), jobs.map((job) => h("th", { scope: "col" }, stateMark(job.state, jobLink(job)))))),
    h("tbody", {}, rows.map(({ name, cells }) => {
      const numbers = cells.filter((one) => typeof one === "number");
      const best = name.startsWith("result.") && new Set(numbers).size > 1 ? Math[isLessBetter(name) ? "min" : "max"](...numbers) : NaN;
      return h("tr", {}, h("th", { scope: "row" }, name), cells.map((one) => h("td", { class: one === best ? "best" : undefined }, shown(one))));
    })),
    !rows.length && h("caption", {}, "They do not differ."));
}

/**
 * @param {JobDetail[]} jobs @param {string} before @param {(job: JobDetail) => Record<string, unknown>} of
 * @returns {[string, (job: JobDetail) => unknown][]}
 */
const named = (jobs, before, of) => [...new Set(jobs.flatMap((job) => Object.keys(of(job))))].map((name) => [`${before}${name}`, (job) => new Map(Object.entries(of(job))).get(name)]);

/** @param {unknown} value @returns {Child} */
const shown = (value) => (value === null || value === undefined ? "" : typeof value === "number" ? short(value) : typeof value === "string" ? value : JSON.stringify(value));
