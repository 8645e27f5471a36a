// The frame of the page: which view an address shows, navigation, theme, the state of the connection.
// It knows no job; each view is a module that draws into `main`.

import * as api from "./api.js";
import { archive } from "./archive.js";
import { inform, showDone, copy } from "./ask.js";
import { compare } from "./compare.js";
import { curves } from "./curves.js";
import { h, put, say } from "./dom.js";
import { graph } from "./graph.js";
import { job } from "./job.js";
import { jobs } from "./jobs.js";
import { loginView } from "./login.js";
import { overview } from "./overview.js";
import { resources } from "./resources.js";
import { results } from "./results.js";
import { timeline } from "./timeline.js";
import { address, ago, setZone, wholeTime, zone } from "./text.js";

/** @import { About, Groups, Group, Place, View } from "./types.js" */

/** @type {Map<string, {label: string, icon?: string, open: (place: Place) => Promise<View>}>} */
const VIEWS = new Map([
  ["", { label: "Overview", icon: "⌂", open: overview }],
  ["jobs", { label: "Jobs", icon: "☰", open: jobs }],
  ["timeline", { label: "Timeline", icon: "▤", open: timeline }],
  ["results", { label: "Results", icon: "⁘", open: results }],
  ["curves", { label: "Curves", icon: "∿", open: curves }],
  ["graph", { label: "Graph", icon: "⎇", open: graph }],
  ["resources", { label: "Resources", icon: "▦", open: resources }],
  ["archive", { label: "Archive", icon: "▩", open: archive }],
  ["job", { label: "Job", open: job }],
  ["compare", { label: "Compare", open: compare }],
]);
/** The views of the keys 1 to 8; the first seven as `tenuto top` has them. */
const NUMBERED = ["", "jobs", "timeline", "graph", "results", "resources", "archive", "curves"];
const HIDDEN = new Set(["job", "compare"]);
const FIELDS = ["state", "task", "id", "reason", "message", "attempt", "submitted", "started", "ended", "duration", "progress", "kind", "group", "owner"];
const KEYS = [
  ["/", "search: words, or state=error and lr<0.05"], ["?", "these keys"], ["1 – 8", "overview jobs timeline graph results resources archive curves"],
  ["j k ↓ ↑", "next and previous job; g G first and last"], ["Enter", "open"], ["space", "mark; with shift and a click up to it"], ["l", "log of the job"], ["w", "why it is where it is"],
  ["x", "compare what is marked"], ["K R D", "kill, retry, clean: asked first"], ["Esc", "close what was opened"],
];

/** @param {string} id */
const part = (id) => /** @type {HTMLElement} */ (document.getElementById(id));
const main = part("main");
const live = part("live");
const narrow = matchMedia("(max-width: 760px)");
const box = { form: /** @type {HTMLFormElement} */ (part("search")), input: /** @type {HTMLInputElement} */ (part("search").querySelector("input")) };
put(part("fields"), FIELDS.map((field) => h("option", { value: `${field}=` })));

/** @type {View} */
let view = {};
/** @type {About | null} */
let about = null;
let shown = 0;
let missed = false;

function parsed() {
  const [path = "", search = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  return { path, query: new URLSearchParams(search) };
}

/** @param {string} current @param {URLSearchParams} query */
function navigation(current, query) {
  const kept = { group: query.get("group") };
  const items = [...VIEWS].filter(([path]) => !HIDDEN.has(path) && (path !== "archive" || about?.kinds.includes("search"))).map(([path, { label, icon }]) =>
    h("a", { href: address(path, kept), "aria-current": path === current ? "page" : undefined }, h("span", { class: "icon", "aria-hidden": "true" }, icon), label));
  const few = items.splice(4);
  put(part("nav"), items, h("details", { class: "rest", open: true }, h("summary", {}, "More"), h("div", { class: "others" }, few)));
  fold();
}

/** On a narrow screen the later views are behind *More*. */
function fold() {
  const rest = part("nav").querySelector("details");
  if (rest) rest.open = !narrow.matches;
}

/** @type {Map<string, Group>} */
const groups = new Map();
let titled = "Tenuto";

/** The counts of what runs and what failed, before the title and in the icon. */
function tellCounts() {
  const live = [...groups.values()].filter((one) => one.live);
  const [running, failed] = [live.reduce((sum, one) => sum + one.counts.running, 0), live.reduce((sum, one) => sum + one.counts.error, 0)];
  document.title = `${running ? `▶${running} ` : ""}${failed ? `✗${failed} ` : ""}${titled}`;
  const colour = failed ? "%23b3261e" : running ? "%231f5fbf" : "%2364707d";
  const label = failed ? Math.min(failed, 99) : running ? Math.min(running, 99) : "";
  part("icon").setAttribute("href", `data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'><rect width='32' height='32' rx='8' fill='${colour}'/><text x='16' y='23' font-size='18' font-family='sans-serif' fill='white' text-anchor='middle'>${label || "t"}</text></svg>`);
}

/** @param {string} text */
function titleOf(text) {
  titled = `${text} · Tenuto`;
  tellCounts();
}

async function countGroups() {
  const found = /** @type {Groups} */ (await api.get("groups", { limit: 200 }));
  groups.clear();
  for (const one of found.groups) groups.set(one.group, one);
  tellCounts();
}

/**
 * The element that one change of view draws into. Its first content takes the place of the view before it; a
 * change that was overtaken by a later one draws into an element that is in no document any more.
 * @param {number} mine
 */
function ground(mine) {
  const element = h("div", { class: "ground" });
  main.append(element);
  const drawn = new MutationObserver(() => {
    drawn.disconnect();
    if (mine === shown) for (const other of [...main.childNodes]) if (other !== element) other.remove();
    if (mine !== shown) element.remove();
  });
  drawn.observe(element, { childList: true });
  return element;
}

async function show() {
  const mine = ++shown;
  main.setAttribute("aria-busy", "true");
  await change(mine);
  if (mine === shown) main.setAttribute("aria-busy", "false");
}

/** @param {number} mine the number of this change of view: a later one has the last word */
async function change(mine) {
  view.close?.();
  view = { delta: () => { missed = true; }, reset: () => { missed = true; } };
  missed = false;
  const place = ground(mine);
  const { path, query } = parsed();
  if (path.startsWith("code=") || !api.hasKey()) {
    about = null;
    put(part("nav"));
    part("logout").hidden = box.form.hidden = true;
    if (!api.hasKey()) connected("logged out");
    await loginView(place, path.startsWith("code=") ? path.slice(5) : "", enter);
    return;
  }
  const found = VIEWS.get(path);
  navigation(path, query);
  if (!found) {
    put(place, h("h1", {}, "No such view"), h("p", {}, h("a", { href: "#/" }, "To the overview")));
    return;
  }
  titleOf(found.label);
  try {
    const known = about ?? /** @type {About} */ (await api.get("about"));
    if (about !== known) {
      about = known;
      navigation(path, query);
      void countGroups().catch(() => undefined);
    }
    part("logout").hidden = false;
    box.form.hidden = false;
    box.input.value = query.get("filter") ?? "";
    trouble("");
    const opened = await found.open({ main: place, query, about: known, trouble });
    if (mine !== shown) {
      opened.close?.();
      return;
    }
    view = opened;
    if (opened.title) titleOf(opened.title);
    if (missed) opened.reset?.();
  } catch (error) {
    if (mine === shown && api.hasKey()) failed(place, error);
  }
  if (mine === shown && api.hasKey()) api.start();
}

/** @param {HTMLElement} place @param {unknown} error */
function failed(place, error) {
  const gone = error instanceof api.Refused && error.status === 404;
  put(
    place,
    h("h1", {}, gone ? "Not here" : "This did not work"),
    h("p", { class: "trouble" }, error instanceof Error ? error.message : String(error)),
    h("p", { class: "bar" }, h("button", { type: "button", onclick: () => void show() }, "Try again"), h("a", { href: "#/" }, "To the overview")),
  );
}

/** @param {string} next */
function enter(next) {
  history.replaceState(null, "", next);
  void show();
}

function theme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("tenuto-theme", root.dataset.theme);
  view.reset?.();
}

const remembered = localStorage.getItem("tenuto-theme");
if (remembered) document.documentElement.dataset.theme = remembered === "dark" ? "dark" : "light";
part("theme").addEventListener("click", theme);
part("logout").addEventListener("click", () => void api.logout());
part("keys").addEventListener("click", showKeys);
part("done").addEventListener("click", showDone);
part("copylink").addEventListener("click", () => void copy(location.href));
part("workspaces").addEventListener("click", () => void showWorkspaces());
part("zone").addEventListener("click", () => {
  setZone(zone() === undefined);
  say(part("zone"), zone() ?? "local time");
  void show();
});
say(part("zone"), zone() ?? "local time");
part("more").addEventListener("click", (event) => { if (event.target instanceof HTMLButtonElement) part("more").removeAttribute("open"); });
narrow.addEventListener("change", fold);

box.form.addEventListener("submit", (event) => {
  event.preventDefault();
  box.input.blur();
  const { path, query } = parsed();
  const kept = path === "jobs" || path === "timeline" || path === "results" ? query.get("group") : null;
  const next = address("jobs", { group: kept, filter: box.input.value.trim(), sort: path === "jobs" ? query.get("sort") : null });
  if (next === location.hash) void show();
  else location.hash = next;
});

/**
 * What is wrong with the search, below the character where it is.
 * @param {string} words @param {number} [position]
 */
function trouble(words, position) {
  const place = part("trouble");
  const text = words.split("\n").at(-1)?.replace(/^\s*\^\s*/, "") ?? "";
  say(place, text && position !== undefined ? `${text} (at character ${position + 1})` : text);
  place.style.paddingLeft = position === undefined ? "" : `calc(.6rem + ${Math.min(position, 40)}ch)`;
}

function showKeys() {
  inform("Keys", h("dl", { class: "keys" }, KEYS.map(([key, words]) => h("div", {}, h("dt", {}, h("kbd", {}, key)), h("dd", {}, words)))));
}

async function showWorkspaces() {
  const found = /** @type {{servers: {workspace: string, port: number}[]}} */ (await api.get("servers"));
  const buttons = found.servers.map((one) => h("li", {}, h("button", { type: "button", onclick: async () => {
    const opened = /** @type {{login: string}} */ (await api.post("servers", { port: one.port }));
    location.href = opened.login;
  } }, one.workspace)));
  inform("Other workspaces", h("p", {}, "This page shows ", h("code", {}, about?.workspace ?? ""), "."),
    buttons.length ? h("ul", { class: "plain" }, buttons) : h("p", { class: "soft" }, "No other page of yours is served here. Start one, and it is offered here:"), h("pre", {}, "tenuto ui -w PATH"));
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !api.hasKey()) return;
  const target = event.target instanceof HTMLElement ? event.target : null;
  if (target?.closest("input:not([type=checkbox]), textarea, select, dialog")) {
    if (event.key === "Escape" && target === box.input) main.focus();
    return;
  }
  if (event.key === "/") box.input.focus();
  else if (event.key === "?") showKeys();
  else if (/^[1-8]$/.test(event.key)) location.hash = address(NUMBERED[Number(event.key) - 1] ?? "", { group: parsed().query.get("group") });
  else if (!view.press?.(event.key)) return;
  event.preventDefault();
});
document.querySelector(".skip")?.addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", () => {
  void show().then(() => {
    if (document.activeElement === null || document.activeElement === document.body) main.focus({ preventScroll: true });
  });
});
setInterval(() => view.tick?.(), 1000);
setInterval(() => {
  for (const one of document.querySelectorAll("time[datetime]")) {
    say(one, ago(one.getAttribute("datetime")));
    one.setAttribute("title", wholeTime(one.getAttribute("datetime")));
  }
}, 10_000);

/** @param {string} state */
function connected(state) {
  live.dataset.live = state;
  say(live, state);
}

api.listen({
  live: connected,
  delta: (delta) => {
    for (const one of delta.groups) groups.set(one.group, one);
    if (delta.groups.length) tellCounts();
    view.delta?.(delta);
  },
  reset: () => view.reset?.(),
  log: (part) => view.log?.(part),
  metrics: (keys) => view.metrics?.(keys),
  loggedOut: () => void show(),
});
void show();
