// The frame of the page: which view an address shows, navigation, theme, the state of the connection.
// It knows no job; each view is a module that draws into `main`.

import * as api from "./api.js";
import { archive } from "./archive.js";
import { h, put, say } from "./dom.js";
import { graph } from "./graph.js";
import { job } from "./job.js";
import { jobs } from "./jobs.js";
import { loginView } from "./login.js";
import { overview } from "./overview.js";
import { resources } from "./resources.js";
import { results } from "./results.js";
import { timeline } from "./timeline.js";
import { address } from "./text.js";

/** @import { About, Place, View } from "./types.js" */

/** @type {Map<string, {label: string, open: (place: Place) => Promise<View>}>} */
const VIEWS = new Map([
  ["", { label: "Overview", open: overview }],
  ["jobs", { label: "Jobs", open: jobs }],
  ["timeline", { label: "Timeline", open: timeline }],
  ["graph", { label: "Graph", open: graph }],
  ["results", { label: "Results", open: results }],
  ["resources", { label: "Resources", open: resources }],
  ["archive", { label: "Archive", open: archive }],
  ["job", { label: "Job", open: job }],
]);

/** @param {string} id */
const part = (id) => /** @type {HTMLElement} */ (document.getElementById(id));
const main = part("main");
const live = part("live");

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
  const items = [...VIEWS].filter(([path]) => path !== "job").map(([path, { label }]) =>
    h("a", { href: address(path, kept), "aria-current": path === current ? "page" : undefined }, label));
  put(part("nav"), items);
  part("nav").querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
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
    part("logout").hidden = true;
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
  document.title = `${found.label} · Tenuto`;
  try {
    const known = about ?? /** @type {About} */ (await api.get("about"));
    about = known;
    part("logout").hidden = false;
    const opened = await found.open({ main: place, query, about: known });
    if (mine !== shown) {
      opened.close?.();
      return;
    }
    view = opened;
    if (opened.title) document.title = `${opened.title} · Tenuto`;
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
    h("p", {}, h("button", { type: "button", onclick: () => void show() }, "Try again")),
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

/** @param {string} state */
function connected(state) {
  live.dataset.live = state;
  say(live, state);
}

api.listen({
  live: connected,
  delta: (delta) => view.delta?.(delta),
  reset: () => view.reset?.(),
  log: (part) => view.log?.(part),
  loggedOut: () => void show(),
});
void show();
