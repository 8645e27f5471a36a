// The archive of a search: a map of its cells, the chosen cell, and how best and coverage grew.
// The server says what fills each cell; more than two measures show the best over the others.

import { get, getIfAny } from "./api.js";
import { h, put, svg } from "./dom.js";
import { choice, empty, groupChoice, keyLink, throttled, when } from "./parts.js";
import { linearTicks, tick } from "./plot.js";
import { address, clock, nameOfKey, percent, short } from "./text.js";

/** @import { Archive, Axis, Groups, JobDetail, Place, View } from "./types.js" */
/** @typedef {{objective: number | null, key: string, since: string, flies: string, replaced: number, gain: number | null}} Cell */

const SHADES = 10;
const MOST_ANCESTORS = 12;

/** @param {Place} place @returns {Promise<View>} */
export async function archive({ main, query }) {
  const groups = /** @type {Groups} */ (await get("groups", { kind: "search", limit: 200 })).groups.filter((group) => group.kind === "search");
  const group = groups.find((one) => one.group === query.get("group"))?.group ?? groups[0]?.group ?? "";
  const title = h("div", { class: "bar" }, h("h1", {}, "Archive"));
  put(main, title);
  if (!group) {
    main.append(empty("No search is known here yet. Watch one:", "tenuto evolve --demo"));
    return {};
  }
  const facts = h("p", { class: "soft" });
  const map = h("div", { class: "heat", tabindex: 0, role: "region", "aria-label": "Archive" });
  const cell = h("div", { class: "card", role: "status" });
  const curve = h("div", { class: "curve" });
  const axes = h("span", { class: "bar" });
  let [first, second] = [0, 1];
  let [chosenX, chosenY] = [-1, -1];
  /** @type {Archive | null} */
  let found = null;
  /** @type {Map<string, string | null>} */
  const known = new Map();
  const draw = () => {
    if (!found) return;
    const [across, down] = [found.axes[first] ?? NO_AXIS, found.axes[second] ?? NO_AXIS];
    put(facts, `best ${short(found.best)} · ${short(found.filled)} of ${short(found.total)} cells (${percent(found.filled / Math.max(found.total, 1))}) · ${found.in_flight.length} in flight`);
    const cells = projected(found, first, second);
    const focused = map.contains(document.activeElement);
    const line = h("div", { class: "lineage", "aria-hidden": "true" });
    const choose = async (/** @type {number} */ x, /** @type {number} */ y) => {
      [chosenX, chosenY] = [x, y];
      const chosen = cells.get(`${x} ${y}`);
      drawCell(cell, chosen, x, y);
      put(line);
      if (!chosen?.key) return;
      const ancestors = await lineage(chosen.key, known).catch(() => []);
      if (chosenX !== x || chosenY !== y) return;
      drawCell(cell, chosen, x, y, ancestors);
      put(line, path(cells, ancestors, across.cells, down.cells));
    };
    const grid = drawMap(cells, across, down, chosenX, chosenY, (x, y) => void choose(x, y));
    grid.querySelector(".map")?.append(line);
    put(map, grid, legend(cells));
    if (focused) /** @type {HTMLElement | null} */ (grid.querySelector('[tabindex="0"]'))?.focus();
    if (chosenX >= 0) void choose(chosenX, chosenY);
    else drawCell(cell, undefined, -1, -1);
    put(curve, curves(found));
    /** @type {[string, string][]} */
    const names = found.axes.map((axis, number) => [String(number), axis.name]);
    put(axes, names.length > 2 && [
      choice("across", names, String(first), (value) => { first = Number(value); draw(); }),
      choice("up", names, String(second), (value) => { second = Number(value); draw(); })]);
  };
  const load = async () => {
    found = await getIfAny("archive", { group });
    body.hidden = !found;
    nothing.hidden = Boolean(found);
    if (found) draw();
  };
  title.append(groupChoice(groups, group, (value) => { location.hash = address("archive", { group: value }); }), axes, facts);
  const body = h("div", { class: "columns archive" }, map, h("div", {}, cell, curve));
  const nothing = h("div", {}, empty("This search keeps no archive: its sampler looks for one best. One with measures fills the cells of a map:", "sampler=MapElites((20, 20), [(0, 1), (0, 1)])"));
  main.append(body, nothing);
  await load();
  if (!found) return {};
  const again = throttled(() => load().catch(() => undefined), 1000);
  return { delta: again, reset: again };
}

/**
 * A candidate and its ancestors, the nearest first; `known` keeps each parent, which never changes.
 * @param {string} key @param {Map<string, string | null>} known
 */
async function lineage(key, known) {
  const found = [key];
  while (found.length < MOST_ANCESTORS) {
    const last = found.at(-1) ?? "";
    if (!known.has(last)) known.set(last, /** @type {JobDetail} */ (await get("job", { key: last })).dependencies[0]?.key ?? null);
    const parent = known.get(last) ?? null;
    if (parent === null || found.includes(parent)) break;
    found.push(parent);
  }
  return found;
}

/**
 * A line through the cells of a lineage, as far as they are elites.
 * @param {Map<string, Cell>} cells @param {string[]} keys @param {number} columns @param {number} rows
 */
function path(cells, keys, columns, rows) {
  const places = new Map([...cells].map(([place, cell]) => [cell.key, place]));
  const points = keys.flatMap((key) => {
    const [x, y] = (places.get(key) ?? "").split(" ").map(Number);
    return x === undefined || y === undefined || Number.isNaN(x) ? [] : [`${((x + 0.5) / columns) * 100},${((rows - y - 0.5) / rows) * 100}`];
  });
  return points.length > 1 && svg("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none" }, svg("polyline", { points: points.join(" ") }));
}

/** @type {Axis} */
const NO_AXIS = { name: "", low: 0, high: 1, cells: 1 };

/**
 * Cells of two measures; over the others the best is taken.
 * @param {Archive} found @param {number} first @param {number} second
 */
function projected(found, first, second) {
  const measures = found.axes.length;
  /** @type {Map<string, Cell>} */
  const cells = new Map();
  /** @param {(number | string | null)[]} one */
  const place = (one) => `${one[first] ?? 0} ${measures > 1 ? one[second] : 0}`;
  for (const one of found.cells) {
    const [objective, key, since, replaced, gain] = one.slice(measures);
    const before = cells.get(place(one))?.objective;
    if (before !== undefined && before !== null && before >= Number(objective)) continue;
    cells.set(place(one), { objective: Number(objective), key: String(key), since: String(since ?? ""), flies: "", replaced: Number(replaced ?? 0), gain: typeof gain === "number" ? gain : null });
  }
  for (const one of found.in_flight) {
    const key = String(one[measures]);
    const before = cells.get(place(one));
    cells.set(place(one), before ? { ...before, flies: key } : { objective: null, key: "", since: "", flies: key, replaced: 0, gain: null });
  }
  return cells;
}

/** @param {Map<string, Cell>} cells */
function span(cells) {
  const known = [...cells.values()].map((cell) => cell.objective).filter((value) => value !== null);
  return known.length ? [Math.min(...known), Math.max(...known)] : [0, 1];
}

/**
 * @param {Map<string, Cell>} cells @param {Axis} across @param {Axis} down @param {number} chosenX @param {number} chosenY
 * @param {(x: number, y: number) => void} choose
 */
function drawMap(cells, across, down, chosenX, chosenY, choose) {
  const [low = 0, high = 1] = span(cells);
  const [columns, rows] = [across.cells, down.cells];
  const [homeX, homeY] = chosenX >= 0 ? [chosenX, chosenY] : [0, rows - 1];
  /** @type {HTMLElement[][]} */
  const grid = [];
  const lines = Array.from({ length: rows }, (_, number) => {
    const y = rows - 1 - number;
    const line = Array.from({ length: columns }, (_unused, x) => {
      const cell = cells.get(`${x} ${y}`);
      const objective = cell?.objective ?? null;
      const shade = objective === null ? "" : String(Math.min(SHADES - 1, Math.floor(((objective - low) / Math.max(high - low, 1e-12)) * SHADES)));
      const words = `${x}, ${y}: ${objective === null ? "empty" : short(objective)}${cell?.flies ? ", in flight" : ""}`;
      return h("span", {
        role: "gridcell", tabindex: x === homeX && y === homeY ? 0 : -1, class: cell?.flies ? "cell flies" : "cell", "data-shade": shade,
        "data-key": cell?.key || cell?.flies || undefined, "aria-label": words, title: words,
        onfocus: () => choose(x, y), onmouseenter: () => choose(x, y),
        onclick: () => open(cell),
      });
    });
    grid[y] = line;
    return h("div", { role: "row", class: "cells" }, line);
  });
  const element = h("div", { role: "grid", class: "map", "aria-label": `${across.name} across, ${down.name} up`, onkeydown: (/** @type {KeyboardEvent} */ event) => {
    const moves = new Map([["ArrowLeft", [-1, 0]], ["ArrowRight", [1, 0]], ["ArrowUp", [0, 1]], ["ArrowDown", [0, -1]]]);
    const target = /** @type {HTMLElement} */ (event.target);
    const y = grid.findIndex((line) => line?.includes(target));
    const x = grid[y]?.indexOf(target) ?? -1;
    if (event.key === "Enter") open(cells.get(`${x} ${y}`));
    const [right = 0, up = 0] = moves.get(event.key) ?? [];
    if (!right && !up) return;
    event.preventDefault();
    const next = grid[y + up]?.[x + right];
    if (!next) return;
    target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  } }, lines);
  element.style.setProperty("--cells", String(columns));
  return h("div", { class: "mapbox" },
    h("p", { class: "axisname up" }, `${down.name} ↑`), ticks(down, "vertical"), element, ticks(across, "horizontal"),
    h("p", { class: "axisname across" }, `${across.name} →`));
}

/** @param {Axis} axis @param {string} way */
function ticks(axis, way) {
  const span = axis.high - axis.low || 1;
  return h("div", { class: `ticks ${way}`, "aria-hidden": "true" }, linearTicks(axis.low, axis.high, 5).map((value) => {
    const mark = h("span", {}, tick(value));
    mark.style.setProperty("--at", `${((value - axis.low) / span) * 100}%`);
    return mark;
  }));
}

/** @param {Cell | undefined} cell */
function open(cell) {
  const key = cell?.key || cell?.flies;
  if (key) location.hash = address("job", { key });
}

/** @param {HTMLElement} place @param {Cell | undefined} cell @param {number} x @param {number} y @param {string[]} [ancestors] */
function drawCell(place, cell, x, y, ancestors = []) {
  if (x < 0) return put(place, h("p", { class: "soft" }, "Choose a cell: arrows move, Enter opens its job."));
  put(place, h("h2", {}, `Cell ${x}, ${y}`),
    cell?.objective !== undefined && cell.objective !== null
      ? h("p", {}, `objective ${short(cell.objective)}`, cell.since && [" · elite since ", when(cell.since)], h("br", {}), keyLink(cell.key)) : h("p", { class: "soft" }, "empty"),
    cell !== undefined && cell.replaced > 0 && h("p", { "data-field": "replaced" }, `replaced ${cell.replaced === 1 ? "once" : `${cell.replaced} times`}${cell.gain === null ? "" : `, last by ${cell.gain > 0 ? "+" : ""}${short(cell.gain)}`}`),
    ancestors.length > 1 && h("p", { "data-field": "lineage" }, "parents: ", ancestors.slice(1).map((key) => [" ← ", keyLink(key)])),
    cell?.flies && h("p", {}, "in flight: ", h("a", { href: address("job", { key: cell.flies }) }, nameOfKey(cell.flies))));
}

/** @param {Map<string, Cell>} cells */
function legend(cells) {
  const [low = 0, high = 1] = span(cells);
  return h("p", { class: "legend soft" }, `${short(low)} `, Array.from({ length: SHADES }, (_, shade) => h("span", { class: "cell", "data-shade": shade, "aria-hidden": "true" })), ` ${short(high)}`, " · outlined: in flight");
}

/** @param {Archive} found */
function curves(found) {
  const points = found.history;
  if (points.length < 2) return null;
  const bests = points.map(([, , best]) => best ?? 0);
  const [low, high] = [Math.min(...bests), Math.max(...bests)];
  /** @param {number[]} values @param {number} least @param {number} most */
  const line = (values, least, most) => values.map((value, place) => `${(place / (values.length - 1)) * 100},${38 - ((value - least) / Math.max(most - least, 1e-12)) * 36}`).join(" ");
  return h("figure", {},
    svg("svg", { viewBox: "0 0 100 40", preserveAspectRatio: "none", role: "img", "aria-label": `best grew from ${short(low)} to ${short(high)}` },
      svg("polyline", { points: line(bests, low, high), class: "best" }),
      svg("polyline", { points: line(points.map(([, filled]) => filled), 0, found.total), class: "filled" })),
    h("figcaption", { class: "soft" }, `— best ${short(low)} to ${short(high)}   ┄ cells filled, ${clock(points[0]?.[0])} – ${clock(points.at(-1)?.[0])}`));
}
