// Resources: tokens, services of runs, queue and nodes of the service, energy, what may be cleaned up.
// Panels that no open door has are left out.

import { get, getIfAny } from "./api.js";
import { CurvePlot, SYSTEM, valueText } from "./curves.js";
import { h, link, put } from "./dom.js";
import { bar, empty, jobLink, keyLink, plainTable, stateMark, throttled, when } from "./parts.js";
import { COLOURS } from "./plot.js";
import { address, duration, energy, groupName, short, size, UNKNOWN } from "./text.js";

/** @import { Carbon, Child, Cleanup, Groups, Jobs, Metrics, Nodes, Place, Queue, Token, View } from "./types.js" */

const MOST = 6;
const HOST_METRICS = [SYSTEM + "host_cpu", SYSTEM + "host_memory"];
const SAMPLE_S = 10;
const WITH_CLUSTERS = "state=scheduled and kind=experiment";

/** @param {Place} place @returns {Promise<View>} */
export async function resources({ main }) {
  const panels = h("div", { class: "panels" });
  const plots = HOST_METRICS.map((name) => new CurvePlot(name === HOST_METRICS[0] ? "Processors busy, by host" : "Memory taken, by host", 120));
  const load = async () => {
    const [tokens, groups, queue, nodes, carbon, cleanup] = await Promise.all([
      /** @type {Promise<{tokens: Token[], now: string} | null>} */ (getIfAny("tokens")),
      /** @type {Promise<Groups>} */ (get("groups", { limit: 50 })),
      /** @type {Promise<Queue | null>} */ (getIfAny("queue")),
      /** @type {Promise<Nodes | null>} */ (getIfAny("nodes")),
      /** @type {Promise<Carbon | null>} */ (getIfAny("carbon")),
      /** @type {Promise<Cleanup | null>} */ (getIfAny("cleanup")),
    ]);
    const hasServices = groups.groups.some((group) => group.services.length);
    const isMeasured = carbon?.groups.some((one) => one.measured > 0) ?? false;
    put(panels,
      tokens && tokens.tokens.length > 0 && panel("Tokens", tokenTable(tokens.tokens, tokens.now)),
      hasServices && panel("Services of runs", serviceTable(groups)),
      await clusterPanel(),
      queue && panel("Queue", queueTables(queue)),
      nodes && panel("Nodes", nodeTable(nodes)),
      await hostPanel(plots),
      carbon && isMeasured && panel("Energy", carbonTables(carbon)),
      cleanup && panel("Clean-up", cleanupFacts(cleanup)));
    if (!panels.childElementCount) put(panels, empty("Nothing here uses a token, a service or a node yet.", undefined));
  };
  put(main, h("h1", {}, "Resources"), panels);
  await load();
  const again = throttled(() => load().catch(() => undefined), 2000);
  return { delta: again, reset: again, close: () => { for (const plot of plots) plot.close(); } };
}

/**
 * Hosts of jobs that run, as their runners measured them: how busy each is now, and was.
 * @param {CurvePlot[]} plots
 */
async function hostPanel(plots) {
  const found = /** @type {Metrics} */ (await get("metrics", { filter: "state=running", name: HOST_METRICS, points: 300, limit: 200 }));
  const measured = found.jobs.filter((job) => job.curves.length);
  if (!measured.length) return null;
  const hosts = [...new Set(measured.map((job) => job.where))].sort();
  /** @param {string} host @param {string} name @returns {Map<number, number>} time -> value; jobs of one host tell the same */
  const course = (host, name) => new Map(measured.filter((job) => job.where === host).flatMap((job) => job.curves).filter((one) => one.name === name)
    .flatMap((one) => one.times.map((time, at) => /** @type {[number, number]} */ ([Math.round((time ?? 0) / SAMPLE_S) * SAMPLE_S, one.values[at] ?? 0]))).sort((one, other) => one[0] - other[0]));
  const courses = HOST_METRICS.map((name) => hosts.map((host) => course(host, name)));
  const first = Math.min(...courses.flat().flatMap((one) => [...one.keys()].slice(0, 1)));
  courses.forEach((some, place) => plots[place]?.show(some.map((one, at) => {
    const values = [...one.values()];
    return { key: hosts[at] ?? "", label: hosts[at] ?? "", colour: COLOURS[at % COLOURS.length] ?? "", x: [...one.keys()].map((time) => time - first), y: values, raw: values };
  }), { byTime: true, name: HOST_METRICS[place] }));
  return panel("Hosts", [
    plainTable("Hosts", ["host", "jobs", "processors busy", "memory taken"], hosts.map((host, at) => [host, String(measured.filter((job) => job.where === host).length),
      ...courses.map((some, place) => valueText(HOST_METRICS[place], [...some[at]?.values() ?? []].at(-1) ?? null))]), new Set([1, 2, 3])),
    ...plots.map((plot) => [h("h3", {}, plot.label), plot.element])]);
}

/** @param {string} title @param {Child} content */
const panel = (title, content) => h("section", { class: "card", "aria-label": title }, h("h2", {}, title), content);

/**
 * Jobs that a cluster has, by state: which wait there, for what, and under which number.
 */
async function clusterPanel() {
  const found = /** @type {Jobs} */ (await get("jobs", { filter: WITH_CLUSTERS, limit: 100 }));
  if (!found.matched) return null;
  return panel("In queues of clusters", [h("p", {}, h("a", { href: address("jobs", { filter: WITH_CLUSTERS }) }, `${short(found.matched)} jobs wait in a queue`)),
    plainTable("In queues", ["job", "since", "where", "why"], found.jobs.slice(0, MOST * 2).map((job) => [jobLink(job), when(job.submitted), job.where, job.message ?? ""]))]);
}

/** @param {string} words */
const none = (words) => h("p", { class: "soft" }, words);

/** @param {(string | null)[]} keys @returns {Child} */
function holders(keys) {
  const known = keys.filter((key) => key !== null);
  return [known.slice(0, MOST).map((key) => [keyLink(key), " "]), known.length > MOST ? `and ${known.length - MOST} more` : ""];
}

/** @param {Token[]} tokens @param {string} now */
function tokenTable(tokens, now) {
  if (!tokens.length) return none("No job asks for a token.");
  return plainTable("Tokens", ["token", "units", "held by", "waiting"], tokens.map((token) => {
    const oldest = token.waiting.map((one) => one.since).filter((since) => since !== null).sort()[0];
    const wait = oldest ? `, oldest ${duration((Date.parse(now) - Date.parse(oldest)) / 1000)}` : "";
    return [
      h("b", {}, token.name),
      [token.capacity !== null && bar(token.held / Math.max(token.capacity, 1), `units of ${token.name}`), h("span", { class: "state" }, ` ${token.held} of ${token.capacity ?? "?"}`)],
      holders(token.holders.map((one) => one.key)),
      token.waiting.length ? `${token.waiting.length}${wait}` : UNKNOWN,
    ];
  }));
}

/** @param {Groups} groups */
function serviceTable(groups) {
  const rows = groups.groups.flatMap((group) => group.services.map((one) =>
    [one.id, groupName(group), one.url ? link(one.url) : UNKNOWN, one.state, one.message ?? one.description]));
  return rows.length ? plainTable("Services of runs", ["service", "run", "address", "state", "about"], rows) : none("No run has a service.");
}

/** @param {Queue} queue */
const queueTables = (queue) => [
  plainTable("Queue by service", ["service", "queued", "running", "most", "oldest waits"], queue.services.map((one) =>
    [text(one.name), text(one.queued), text(one.running), text(one.max_runs), typeof one.oldest_s === "number" ? duration(one.oldest_s) : UNKNOWN]), new Set([1, 2, 3, 4])),
  queue.users.length > 0 && plainTable("Queue by user", ["user", "service", "queued", "running", "quota"], queue.users.map((one) =>
    [text(one.user), text(one.service), text(one.queued), text(one.running), text(one.quota)]), new Set([2, 3, 4])),
];

/** @param {unknown} value */
const text = (value) => (value === null || value === undefined ? UNKNOWN : Array.isArray(value) ? value.join(", ") : String(value));

/** @param {string} state */
const nodeState = (state) => stateMark(state === "away" ? "error" : state === "idle" ? "unscheduled" : "running", state);

/** @param {Nodes} nodes */
const nodeTable = (nodes) => (nodes.nodes.length
  ? plainTable("Nodes", ["node", "services", "state", "load", "jobs", "seen", "failures"], nodes.nodes.map((one) => [
    text(one.url), text(one.services), nodeState(text(one.state)), typeof one.load === "number" ? `${Math.round(one.load * 100)}\u00a0%` : UNKNOWN,
    `${text(one.running)}/${text(one.slots)}`, typeof one.seen === "string" ? when(one.seen) : text(one.seen), text(one.failures)]), new Set([3, 4, 6]))
  : none("No node is registered."));

/** @param {Carbon} carbon */
function carbonTables(carbon) {
  /** @param {number | null | undefined} kg */
  const grams = (kg) => (kg === undefined || kg === null ? UNKNOWN : `${Number((kg * 1000).toPrecision(3))} g`);
  if (!carbon.groups.length && !carbon.tasks.length) return none("Nothing was measured.");
  return [
    plainTable("Energy by run", ["run", "energy", "CO2", "measured", "region"], carbon.groups.filter((one) => one.measured > 0).map((one) =>
      [one.group.slice(one.group.indexOf(":") + 1), energy(one.energy_kwh), grams(one.co2_kg), `${short(one.measured)} of ${short(one.of)}`, one.region ?? ""]), new Set([1, 2, 3])),
    plainTable("Energy by task", ["task", "energy", "CO2", "jobs"], carbon.tasks.map((one) =>
      [one.task, energy(one.energy_kwh), grams(one.co2_kg), short(one.jobs)]), new Set([1, 2, 3])),
  ];
}

/** @param {Cleanup} cleanup */
const cleanupFacts = (cleanup) => h("ul", { class: "plain" },
  h("li", {}, `${cleanup.unowned.length === 1 ? "1 running job belongs" : `${cleanup.unowned.length} running jobs belong`} to no live run `, cleanup.unowned.slice(0, MOST).map((job) => [jobLink(job), " "])),
  h("li", {}, `${short(cleanup.orphans.jobs)} finished jobs belong to no run, ${size(cleanup.orphans.bytes)}`),
  cleanup.bad_lines > 0 && h("li", {}, `${short(cleanup.bad_lines)} lines of journals could not be read`),
  cleanup.alarms.map((alarm) => h("li", {}, "! ", alarm.key && keyLink(alarm.key), " ", alarm.text)));
