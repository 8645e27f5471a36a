// Results of jobs: table, scatter and parallel coordinates, brushed together; a brush is written as a filter.
// Columns and their ranges come from the server; ranges chosen here live in this view only.

import { get } from "./api.js";
import { h, put, say, svg } from "./dom.js";
import { choice, groupChoice, plainTable, throttled } from "./parts.js";
import { address, filterValue, nameOfKey, short } from "./text.js";

/** @import { Cell, Column, Groups, Place, Results, View } from "./types.js" */
/** @typedef {Record<string, Cell>} Row */
/** @typedef {Map<string, [low: number, high: number]>} Ranges */

const FIXED = ["key", "task", "id", "state"];
const MOST_ROWS = 1000;
const MOST_LISTED = 200;
const [WIDTH, HEIGHT, EDGE] = [600, 300, 40];
const LEFT = 80;

/** @param {Place} place @returns {Promise<View>} */
export async function results({ main, query }) {
  const groups = /** @type {Groups} */ (await get("groups", { limit: 200 })).groups;
  const group = query.get("group") ?? groups[0]?.group ?? "";
  put(main, h("h1", {}, "Results"));
  if (!group) {
    main.append(h("p", { class: "soft" }, "No group is known here yet."));
    return {};
  }
  const task = query.get("task") ?? "";
  /** @type {Results} */
  let found = await get("results", { group, task, limit: MOST_ROWS });
  const all = task ? /** @type {Results} */ (await get("results", { group, limit: MOST_ROWS })) : found;
  const tasks = [...new Set(all.rows.map((row) => String(row.task)))].sort();
  /** @type {Ranges} */
  const ranges = new Map();
  const chosen = { x: "", y: "", colour: "", logX: false, logY: false, top: 100 };
  const scatter = h("div", { class: "chart" });
  const parallel = h("div", { class: "chart" });
  const listing = h("div", { class: "listing" });
  const controls = h("div", { class: "bar axes" });
  const limits = h("div", { class: "menu" });
  const filter = h("input", { type: "text", readonly: true, "aria-label": "Filter of what is brushed", class: "wide" });
  const see = h("a", { class: "button" }, "see jobs");
  const count = h("span", { class: "soft", role: "status" });

  const numbers = () => found.columns.filter((column) => column.kind === "number" && column.min !== null && column.max !== null);
  const brushed = () => {
    const inside = found.rows.filter((row) => [...ranges].every(([name, [low, high]]) => typeof row[name] === "number" && row[name] >= low && row[name] <= high));
    if (chosen.top >= 100 || !chosen.y) return inside;
    const best = inside.filter((row) => typeof row[chosen.y] === "number").sort((one, other) => Number(other[chosen.y]) - Number(one[chosen.y]));
    return best.slice(0, Math.max(1, Math.ceil((best.length * chosen.top) / 100)));
  };
  const draw = () => {
    const inside = new Set(brushed());
    const columns = numbers();
    put(scatter, drawScatter(found.rows, inside, columns, chosen, ranges, draw));
    put(parallel, drawParallel(found.rows, inside, columns, ranges, draw));
    drawRows(listing, [...inside], found.columns);
    const text = written(ranges, task);
    filter.value = text;
    see.setAttribute("href", address("jobs", { group, filter: text }));
    say(count, `${short(inside.size)} of ${short(found.total)} results`);
    drawLimits(limits, columns, ranges, draw);
  };
  const choose = () => {
    const names = numbers().map((column) => column.name);
    /** @param {string[]} some */
    const rowsWith = (...some) => found.rows.filter((row) => some.every((name) => typeof row[name] === "number")).length;
    const given = names.filter((name) => name.startsWith("result") || name === "objective");
    if (!names.includes(chosen.y)) chosen.y = most(given.length ? given : names.slice(-1), rowsWith);
    if (!names.includes(chosen.x)) chosen.x = most(names.filter((name) => name !== chosen.y), (name) => rowsWith(name, chosen.y)) || chosen.y;
    /** @type {[string, string][]} */
    const options = names.map((name) => [name, name]);
    /** @param {"logX" | "logY"} name @param {string} words */
    const log = (name, words) => {
      const box = h("input", { type: "checkbox", checked: chosen[name], onchange: () => { chosen[name] = box.checked; draw(); } });
      return h("label", { class: "choice" }, box, words);
    };
    put(controls,
      groupChoice(groups, group, (value) => { location.hash = address("results", { group: value }); }),
      choice("Task", [["", "all tasks"], ...tasks.map((one) => /** @type {[string, string]} */ ([one, one]))], task, (value) => { location.hash = address("results", { group, task: value }); }),
      choice("x", options, chosen.x, (value) => { chosen.x = value; draw(); }), log("logX", "log x"),
      choice("y", options, chosen.y, (value) => { chosen.y = value; draw(); }), log("logY", "log y"),
      choice("Colour", [["", "none"], ...options], chosen.colour, (value) => { chosen.colour = value; draw(); }),
      choice("Top", [["100", "all"], ["50", "50 %"], ["10", "10 %"], ["1", "1 %"]], String(chosen.top), (value) => { chosen.top = Number(value); draw(); }));
  };
  main.append(controls,
    h("div", { class: "columns" },
      h("section", { "aria-label": "Scatter" }, h("h2", {}, "Scatter"), scatter),
      h("section", { "aria-label": "Parallel coordinates" }, h("h2", {}, "Parallel coordinates"), parallel)),
    h("div", { class: "bar" }, h("details", { class: "choices" }, h("summary", {}, "Ranges"), limits), filter, see,
      h("button", { type: "button", onclick: () => { ranges.clear(); draw(); } }, "clear"), count),
    listing);
  choose();
  draw();
  const again = throttled(async () => {
    const before = JSON.stringify([found.rows, found.columns]);
    found = await get("results", { group, task, limit: MOST_ROWS });
    if (JSON.stringify([found.rows, found.columns]) === before) return;
    choose();
    draw();
  }, 2000);
  return { delta: again, reset: again };
}

/**
 * What is brushed, as a filter of the command line: it knows tags, parameters, results, and how long a job took.
 * @param {Ranges} ranges @param {string} task
 */
function written(ranges, task) {
  const parts = task ? [`task=${filterValue(task)}`] : [];
  for (const [name, [low, high]] of ranges) {
    const [field, unit] = name === "took_s" ? ["duration", "s"] : [filterValue(name.replace(/^tag\./, "")), ""];
    parts.push(`${field}>=${plain(low)}${unit}`, `${field}<=${plain(high)}${unit}`);
  }
  return parts.join(" and ");
}

/**
 * The first of the names that have most of something.
 * @param {string[]} names @param {(name: string) => number} count
 */
const most = (names, count) => names.reduce((best, name) => (!best || count(name) > count(best) ? name : best), "");

/** @param {number} number */
const plain = (number) => String(Number(number.toPrecision(6)));

/** @param {HTMLElement} listing @param {Row[]} rows @param {Column[]} columns */
function drawRows(listing, rows, columns) {
  const names = columns.filter((column) => !FIXED.includes(column.name));
  const numeric = new Set(names.flatMap((column, place) => (column.kind === "number" ? [place + 1] : [])));
  put(listing, plainTable("Results", ["job", ...names.map((column) => column.name)], rows.slice(0, MOST_LISTED).map((row) => [
    h("a", { href: address("job", { key: String(row.key) }), "data-key": row.key }, nameOfKey(String(row.key))),
    ...names.map((column) => shown(row[column.name]))]), numeric),
  rows.length > MOST_LISTED && h("p", { class: "soft" }, `and ${short(rows.length - MOST_LISTED)} more`));
}

/** @param {Cell | undefined} value */
const shown = (value) => (typeof value === "number" ? short(value) : value === null || value === undefined ? "" : String(value));

/** @param {HTMLElement} limits @param {Column[]} columns @param {Ranges} ranges @param {() => void} draw */
function drawLimits(limits, columns, ranges, draw) {
  if (limits.contains(document.activeElement)) return;
  put(limits, columns.map((column) => {
    const [low = column.min ?? 0, high = column.max ?? 0] = ranges.get(column.name) ?? [];
    const changed = () => { ranges.set(column.name, [Number(from.value), Number(to.value)]); draw(); };
    const from = h("input", { type: "number", step: "any", value: plain(low), "aria-label": `${column.name} from`, onchange: changed });
    const to = h("input", { type: "number", step: "any", value: plain(high), "aria-label": `${column.name} to`, onchange: changed });
    return h("div", { class: "range" }, h("span", {}, column.name), from, "–", to);
  }));
}

/** @param {Column} column @param {boolean} isLog @param {number} start @param {number} end */
function scale(column, isLog, start, end) {
  const [min, max] = [column.min ?? 0, column.max ?? 1];
  const logs = isLog && min > 0;
  const [low, high] = logs ? [Math.log10(min), Math.log10(max)] : [min, max];
  const width = high - low || 1;
  return {
    /** @param {number} value */
    place: (value) => start + (((logs ? Math.log10(value) : value) - low) / width) * (end - start),
    /** @param {number} place */
    value: (place) => {
      const found = low + ((Math.max(Math.min(start, end), Math.min(Math.max(start, end), place)) - start) / (end - start)) * width;
      return logs ? 10 ** found : found;
    },
  };
}

/**
 * @param {Row[]} rows @param {Set<Row>} inside @param {Column[]} columns
 * @param {{x: string, y: string, colour: string, logX: boolean, logY: boolean}} chosen @param {Ranges} ranges @param {() => void} draw
 */
function drawScatter(rows, inside, columns, chosen, ranges, draw) {
  const [across, up, shade] = [chosen.x, chosen.y, chosen.colour].map((name) => columns.find((column) => column.name === name));
  if (!across || !up) return h("p", { class: "soft" }, "No numbers to draw.");
  const x = scale(across, chosen.logX, LEFT + 12, WIDTH - 12);
  const y = scale(up, chosen.logY, HEIGHT - EDGE, 34);
  const tone = shade && scale(shade, false, 0, 9.99);
  const points = rows.filter((row) => typeof row[across.name] === "number" && typeof row[up.name] === "number").map((row) =>
    svg("circle", {
      cx: x.place(Number(row[across.name])), cy: y.place(Number(row[up.name])), r: 5, class: inside.has(row) ? "point" : "point out",
      "data-key": row.key, "data-shade": tone && shade && typeof row[shade.name] === "number" ? Math.floor(tone.place(Number(row[shade.name]))) : undefined,
      onclick: () => { location.hash = address("job", { key: String(row.key) }); },
    }, svg("title", {}, `${nameOfKey(String(row.key))}: ${across.name} ${short(Number(row[across.name]))}, ${up.name} ${short(Number(row[up.name]))}`)));
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${up.name} over ${across.name}; the table below names every point` },
    svg("path", { d: `M ${LEFT} 28 V ${HEIGHT - EDGE + 8} H ${WIDTH - 4}`, class: "axis" }),
    svg("text", { x: WIDTH / 2, y: HEIGHT - 8, "text-anchor": "middle" }, across.name),
    svg("text", { x: WIDTH - 8, y: HEIGHT - 8, "text-anchor": "end" }, tick(across.max)),
    svg("text", { x: LEFT, y: HEIGHT - 8 }, tick(across.min)),
    svg("text", { x: 4, y: 16 }, up.name),
    svg("text", { x: LEFT - 6, y: 40, "text-anchor": "end" }, tick(up.max)),
    svg("text", { x: LEFT - 6, y: HEIGHT - EDGE + 4, "text-anchor": "end" }, tick(up.min)), points);
  brush(picture, ([x1, y1], [x2, y2]) => {
    ranges.set(across.name, ordered(x.value(x1), x.value(x2)));
    ranges.set(up.name, ordered(y.value(y1), y.value(y2)));
    draw();
  });
  return picture;
}

/** @param {Row[]} rows @param {Set<Row>} inside @param {Column[]} columns @param {Ranges} ranges @param {() => void} draw */
function drawParallel(rows, inside, columns, ranges, draw) {
  const axes = columns.slice(0, 8);
  if (axes.length < 2) return h("p", { class: "soft" }, "Two columns of numbers are needed.");
  const step = (WIDTH - 120) / (axes.length - 1);
  const scales = axes.map((column) => scale(column, false, HEIGHT - 40, 28));
  const lines = [...rows].sort((one, other) => Number(inside.has(one)) - Number(inside.has(other))).flatMap((row) =>
    pieces(row, axes).map((piece) => svg("polyline", {
      points: piece.map((place) => `${60 + place * step},${scales[place]?.place(Number(row[axes[place]?.name ?? ""]))}`).join(" "), class: inside.has(row) ? "line" : "line out", "data-key": row.key,
    })));
  const posts = axes.map((column, place) => {
    const range = ranges.get(column.name);
    const [high = 0, low = 0] = range ? [scales[place]?.place(range[1]), scales[place]?.place(range[0])] : [];
    return svg("g", {}, svg("path", { d: `M ${60 + place * step} 28 V ${HEIGHT - 40}`, class: "axis" }),
      range && svg("rect", { x: 52 + place * step, y: high, width: 16, height: Math.max(2, low - high), class: "brush" }),
      svg("text", { x: 60 + place * step, y: HEIGHT - 3, "text-anchor": "middle" }, column.name),
      svg("text", { x: 60 + place * step, y: HEIGHT - 22, "text-anchor": "middle", class: "soft" }, tick(column.min)),
      svg("text", { x: 60 + place * step, y: 18, "text-anchor": "middle", class: "soft" }, tick(column.max)));
  });
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `parallel coordinates of ${axes.map((column) => column.name).join(", ")}` }, lines, posts);
  brush(picture, ([x1, y1], [, y2]) => {
    const place = Math.max(0, Math.min(axes.length - 1, Math.round((x1 - 60) / step)));
    const [column, scaled] = [axes[place], scales[place]];
    if (column && scaled) ranges.set(column.name, ordered(scaled.value(y1), scaled.value(y2)));
    draw();
  });
  return picture;
}

/**
 * The axes on which a row has a number, where two or more of them are next to each other: a line ends where a value is missing.
 * @param {Row} row @param {Column[]} axes
 */
function pieces(row, axes) {
  /** @type {number[][]} */
  const found = [[]];
  axes.forEach((column, place) => {
    if (typeof row[column.name] === "number") found.at(-1)?.push(place);
    else found.push([]);
  });
  return found.filter((piece) => piece.length > 1);
}

/** @param {number} one @param {number} other @returns {[number, number]} */
const ordered = (one, other) => (one < other ? [one, other] : [other, one]);

/**
 * Calls back with both corners of a rectangle that is drawn with the pointer.
 * @param {SVGSVGElement} picture @param {(from: [number, number], to: [number, number]) => void} done
 */
function brush(picture, done) {
  /** @type {[number, number] | null} */
  let from = null;
  const shape = svg("rect", { class: "brush" });
  /** @param {PointerEvent} event @returns {[number, number]} */
  const at = (event) => {
    const { left, top, width, height } = picture.getBoundingClientRect();
    return [((event.clientX - left) / width) * WIDTH, ((event.clientY - top) / height) * HEIGHT];
  };
  picture.addEventListener("pointerdown", (event) => { from = at(event); picture.append(shape); });
  picture.addEventListener("pointermove", (event) => {
    if (!from) return;
    const [x, y] = at(event);
    for (const [name, value] of Object.entries({ x: Math.min(x, from[0]), y: Math.min(y, from[1]), width: Math.abs(x - from[0]), height: Math.abs(y - from[1]) })) shape.setAttribute(name, String(value));
  });
  picture.addEventListener("pointerup", (event) => {
    const [start, end] = [from, at(event)];
    from = null;
    shape.remove();
    if (start && Math.abs(start[0] - end[0]) + Math.abs(start[1] - end[1]) > 8) done(start, end);
  });
}

/**
 * A number at an axis: three digits, since there is little room.
 * @param {number | null} value
 */
const tick = (value) => short(value === null || Number.isInteger(value) ? value : Number(value.toPrecision(3)));
