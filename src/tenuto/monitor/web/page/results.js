// Results of jobs: table, scatter and parallel coordinates, brushed together; a brush is written as a filter.
// Columns and their ranges come from the server; ranges chosen here live in this view only.

import { get } from "./api.js";
import { h, put, say, svg } from "./dom.js";
import { choice, csv, download, empty, groupChoice, plainTable, throttled } from "./parts.js";
import { isLessBetter, scale as scaled, tick, wantsLog } from "./plot.js";
import { address, filterValue, nameOfKey, short } from "./text.js";

/** @import { Cell, Column, Groups, Place, Results, View } from "./types.js" */
/** @typedef {Record<string, Cell>} Row */
/** @typedef {Map<string, [low: number, high: number]>} Ranges */
/** @typedef {{x: string, y: string, colour: string, logX: boolean, logY: boolean, top: number}} Chosen */

const FIXED = ["key", "task", "id", "state"];
const [MOST_ROWS, MOST_DRAWN] = [10_000, 1_500];
const MOST_LISTED = 200;
const MOST_AXES = 8;
const [WIDTH, HEIGHT, EDGE] = [600, 320, 44];
const LEFT = 62;

/** @param {Place} place @returns {Promise<View>} */
export async function results({ main, query }) {
  const groups = /** @type {Groups} */ (await get("groups", { limit: 200 })).groups;
  const group = query.get("group") ?? groups.find((one) => one.counts.done > 0)?.group ?? groups[0]?.group ?? "";
  const title = h("div", { class: "bar" }, h("h1", {}, "Results"));
  put(main, title);
  if (!group) {
    main.append(empty("There is no run, service or search here yet.", "tenuto run script.py"));
    return {};
  }
  const all = /** @type {Results} */ (await get("results", { group, limit: MOST_ROWS }));
  const tasks = [...new Set(all.rows.map((row) => String(row.task)))].sort();
  const fullest = tasks.reduce((best, one) => (withResults(all.rows, one) > withResults(all.rows, best) ? one : best), tasks[0] ?? "");
  const task = query.has("task") ? query.get("task") ?? "" : fullest;
  /** @type {Results} */
  let found = task ? await get("results", { group, task, limit: MOST_ROWS }) : all;
  /** @type {Ranges} */
  const ranges = new Map();
  /** @type {Chosen} */
  const chosen = { x: "", y: "", colour: "", logX: false, logY: false, top: 100 };
  const scatter = h("div", { class: "chart" });
  const parallel = h("div", { class: "chart" });
  const course = h("div", { class: "chart" });
  const shares = h("div", { class: "chart" });
  const slices = h("div", { class: "slices" });
  const listing = h("div", { class: "listing" });
  const controls = h("div", { class: "bar axes" });
  const limits = h("div", { class: "menu" });
  const filter = h("input", { type: "text", readonly: true, "aria-label": "Filter of what is brushed", class: "wide" });
  const see = h("a", { class: "button" }, "see jobs");
  const count = h("span", { class: "soft", role: "status" });

  const numbers = () => found.columns.filter((column) => column.kind === "number" && column.min !== null && column.max !== null);
  /** A search says of its objectives which way is better; of other columns the name tells. */
  const isLess = () => found.columns.some((column) => column.name === chosen.y && column.less) || isLessBetter(chosen.y);
  const ordered = (/** @type {Row[]} */ rows) => rows.filter((row) => typeof row[chosen.y] === "number").sort((one, other) => (isLess() ? 1 : -1) * (Number(one[chosen.y]) - Number(other[chosen.y])));
  const brushed = () => {
    const inside = found.rows.filter((row) => [...ranges].every(([name, [low, high]]) => typeof row[name] === "number" && row[name] >= low && row[name] <= high));
    const best = ordered(inside);
    return chosen.top >= 100 || !chosen.y ? [...best, ...inside.filter((row) => typeof row[chosen.y] !== "number")] : best.slice(0, Math.max(1, Math.ceil((best.length * chosen.top) / 100)));
  };
  const draw = () => {
    const rows = brushed();
    const inside = new Set(rows);
    const columns = numbers();
    const best = ordered(found.rows)[0];
    const drawn = found.rows.length > MOST_DRAWN ? thinned(rows, found.rows) : found.rows;
    put(scatter, drawScatter(drawn, inside, columns, chosen, ranges, draw, best));
    put(parallel, drawParallel(drawn, inside, columns, ranges, draw, best, chosen.y));
    drawRows(listing, rows, found.columns, best);
    put(course, drawCourse(found.rows, columns, chosen.y, isLess()));
    put(slices, drawSlices(drawn, columns.filter(({ name }) => name in found.importance), chosen.y, (name) => { chosen.x = name; choose(); draw(); }));
    put(shares, drawShares(found.importance, (name) => { chosen.x = name; choose(); draw(); }));
    const text = written(ranges, task);
    filter.value = text;
    see.setAttribute("href", address("jobs", { group, filter: text }));
    say(count, `${short(inside.size)} of ${short(found.total)} results`);
    drawLimits(limits, columns, ranges, draw);
  };
  const choose = () => {
    const columns = numbers();
    const names = columns.map((column) => column.name);
    /** @param {string[]} some */
    const rowsWith = (...some) => found.rows.filter((row) => some.every((name) => typeof row[name] === "number")).length;
    const given = names.filter((name) => name.startsWith("result") || name === "objective");
    if (!names.includes(chosen.y)) chosen.y = most(given.length ? given : names.slice(-1), rowsWith);
    if (!names.includes(chosen.x)) {
      const varying = columns.filter(({ name, min, max }) => min !== max && name !== chosen.y && rowsWith(name, chosen.y) > 0);
      const own = varying.filter(({ name }) => !name.startsWith("result") && !["took_s", "objective", "cost"].includes(name) && !name.startsWith("measure "));
      chosen.x = own[0]?.name ?? (most(varying.map(({ name }) => name), (name) => rowsWith(name, chosen.y)) || names.find((name) => name !== chosen.y && rowsWith(name, chosen.y)) || chosen.y);
      for (const [name, at] of /** @type {["logX" | "logY", string][]} */ ([["logX", chosen.x], ["logY", chosen.y]])) {
        const column = columns.find((one) => one.name === at);
        chosen[name] = column !== undefined && wantsLog(column.min, column.max);
      }
    }
    /** @type {[string, string][]} */
    const options = names.map((name) => [name, name]);
    /** @param {"logX" | "logY"} name @param {string} words */
    const log = (name, words) => {
      const box = h("input", { type: "checkbox", checked: chosen[name], onchange: () => { chosen[name] = box.checked; draw(); } });
      return h("label", { class: "choice" }, box, words);
    };
    put(title, h("h1", {}, "Results"),
      groupChoice(groups, group, (value) => { location.hash = address("results", { group: value }); }),
      choice("Task", [["", "all tasks"], ...tasks.map((one) => /** @type {[string, string]} */ ([one, one]))], task, (value) => { location.hash = `${address("results", { group })}&task=${encodeURIComponent(value)}`; }));
    put(controls,
      choice("x", options, chosen.x, (value) => { chosen.x = value; draw(); }), log("logX", "log x"),
      choice("y", options, chosen.y, (value) => { chosen.y = value; draw(); void weigh(); }), log("logY", "log y"),
      choice("Colour", [["", "none"], ...options], chosen.colour, (value) => { chosen.colour = value; draw(); }),
      choice("Top", [["100", "all"], ["50", "50 %"], ["10", "10 %"], ["1", "1 %"]], String(chosen.top), (value) => { chosen.top = Number(value); draw(); }));
  };
  const save = (/** @type {"csv" | "json"} */ kind) => {
    const rows = brushed();
    const names = found.columns.map((column) => column.name);
    download(`results.${kind}`, kind === "csv" ? csv(names, rows) : JSON.stringify(rows, null, 1), kind === "csv" ? "text/csv" : "application/json");
  };
  const nothing = h("div", {});
  const body = h("div", { class: "ground results" }, controls,
    h("div", { class: "columns" },
      h("section", { "aria-label": "Scatter" }, h("h2", {}, "Scatter"), scatter),
      h("section", { "aria-label": "Parallel coordinates" }, h("h2", {}, "Parallel coordinates"), parallel)),
    h("div", { class: "columns" },
      h("section", { "aria-label": "Best so far" }, h("h2", {}, "Best so far"), course),
      h("section", { "aria-label": "Importance" }, h("h2", {}, "Importance"), shares)),
    h("section", { "aria-label": "Slices" }, slices),
    h("div", { class: "bar" }, h("details", { class: "choices" }, h("summary", {}, "Ranges"), limits), filter, see,
      h("button", { type: "button", onclick: () => { ranges.clear(); draw(); } }, "clear"), count, h("span", { class: "grow" }),
      h("button", { type: "button", onclick: () => save("csv") }, "CSV"), h("button", { type: "button", onclick: () => save("json") }, "JSON")),
    listing);
  main.append(nothing, body);
  const tell = () => {
    body.hidden = !found.rows.length;
    put(nothing, !found.rows.length && empty("No job of this run has given a result yet: what execute() returns is shown here.", undefined));
  };
  /** Asks for the importance of each parameter, once the first picture stands. */
  const weigh = async () => {
    const asked = chosen.y;
    const { importance } = /** @type {Results} */ (await get("results", { group, task, limit: 1, importance: asked }));
    if (asked !== chosen.y) return;
    found.importance = importance;
    draw();
  };
  choose();
  draw();
  tell();
  void weigh();
  const again = throttled(async () => {
    const before = JSON.stringify([found.rows, found.columns]);
    const { importance } = found;
    found = { .../** @type {Results} */ (await get("results", { group, task, limit: MOST_ROWS })), importance };
    if (JSON.stringify([found.rows, found.columns]) === before) return;
    void weigh();
    choose();
    draw();
    tell();
  }, 2000);
  return { delta: again, reset: again };
}

/**
 * Of many rows the best half of what can be drawn, and some of the others, evenly.
 * @param {Row[]} best @param {Row[]} all
 */
function thinned(best, all) {
  const first = new Set(best.slice(0, MOST_DRAWN / 2));
  const step = all.length / (MOST_DRAWN / 2);
  return all.filter((row, place) => first.has(row) || Math.floor(place / step) !== Math.floor((place - 1) / step));
}

/** @param {Row[]} rows @param {string} task how many of its rows have a number that the task returned */
const withResults = (rows, task) => rows.filter((row) => row.task === task && Object.entries(row).some(([name, value]) => (name.startsWith("result") || name === "objective") && typeof value === "number")).length;

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

/** @param {HTMLElement} listing @param {Row[]} rows @param {Column[]} columns @param {Row | undefined} best */
function drawRows(listing, rows, columns, best) {
  const names = columns.filter((column) => !FIXED.includes(column.name));
  const numeric = new Set(names.flatMap((column, place) => (column.kind === "number" ? [place + 1] : [])));
  put(listing, plainTable("Results", ["job", ...names.map((column) => column.name.replace(/^result\./, ""))], rows.slice(0, MOST_LISTED).map((row) => [
    [row === best && h("b", { title: "best" }, "★ "), h("a", { href: address("job", { key: String(row.key) }), "data-key": row.key }, nameOfKey(String(row.key)))],
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
const scale = (column, isLog, start, end) => scaled(column.min ?? 0, column.max ?? 1, isLog, start, end);

/**
 * @param {Row[]} rows @param {Set<Row>} inside @param {Column[]} columns
 * @param {Chosen} chosen @param {Ranges} ranges @param {() => void} draw @param {Row | undefined} best
 */
function drawScatter(rows, inside, columns, chosen, ranges, draw, best) {
  const [across, up, shade] = [chosen.x, chosen.y, chosen.colour].map((name) => columns.find((column) => column.name === name));
  if (!across || !up) return h("p", { class: "soft" }, "No numbers to draw.");
  const x = scale(across, chosen.logX, LEFT + 12, WIDTH - 14);
  const y = scale(up, chosen.logY, HEIGHT - EDGE, 34);
  const tone = shade && scale(shade, false, 0, 9.99);
  const points = rows.filter((row) => typeof row[across.name] === "number" && typeof row[up.name] === "number").map((row) =>
    svg("circle", {
      cx: x.place(Number(row[across.name])), cy: y.place(Number(row[up.name])), r: row === best ? 7 : 5, class: `point${inside.has(row) ? "" : " out"}${row === best ? " best" : ""}`,
      "data-key": row.key, "data-shade": tone && shade && typeof row[shade.name] === "number" ? Math.floor(tone.place(Number(row[shade.name]))) : undefined,
      onclick: () => { location.hash = address("job", { key: String(row.key) }); },
    }, svg("title", {}, `${row === best ? "best: " : ""}${nameOfKey(String(row.key))}: ${across.name} ${short(Number(row[across.name]))}, ${up.name} ${short(Number(row[up.name]))}`)));
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${up.name} over ${across.name}; the table below names every point` },
    y.ticks.map((value) => [svg("path", { d: `M ${LEFT} ${y.place(value)} H ${WIDTH - 4}`, class: "gridline" }), svg("text", { x: LEFT - 6, y: y.place(value) + 4, "text-anchor": "end" }, tick(value))]),
    x.ticks.map((value) => [svg("path", { d: `M ${x.place(value)} 28 V ${HEIGHT - EDGE + 8}`, class: "gridline" }), svg("text", { x: x.place(value), y: HEIGHT - EDGE + 22, "text-anchor": "middle" }, tick(value))]),
    svg("path", { d: `M ${LEFT} 28 V ${HEIGHT - EDGE + 8} H ${WIDTH - 4}`, class: "axis" }),
    svg("text", { x: WIDTH - 8, y: HEIGHT - 4, "text-anchor": "end", class: "name" }, `${across.name}${x.isLog ? " (log)" : ""} →`),
    svg("text", { x: 4, y: 16, class: "name" }, `↑ ${up.name}${y.isLog ? " (log)" : ""}`), points);
  brush(picture, ([x1, y1], [x2, y2]) => {
    ranges.set(across.name, ordered(x.value(x1), x.value(x2)));
    ranges.set(up.name, ordered(y.value(y1), y.value(y2)));
    draw();
  });
  return picture;
}

/**
 * Every value in the order of the jobs, and the best until there as a line.
 * @param {Row[]} rows @param {Column[]} columns @param {string} name @param {boolean} isLess
 */
function drawCourse(rows, columns, name, isLess) {
  const column = columns.find((one) => one.name === name);
  const number = (/** @type {Row} */ row) => Number(String(row.key).split("/").at(-1));
  const known = rows.filter((row) => typeof row[name] === "number");
  if (!column || known.length < 2) return h("p", { class: "soft" }, "Two results are needed.");
  const sorted = known.every((row) => Number.isFinite(number(row))) ? [...known].sort((one, other) => number(one) - number(other)) : known;
  const x = scaled(1, sorted.length, false, LEFT + 8, WIDTH - 14);
  const y = scale(column, wantsLog(column.min, column.max), HEIGHT - EDGE, 24);
  let best = Number(sorted[0]?.[name]);
  const line = sorted.map((row, place) => {
    const value = Number(row[name]);
    best = isLess ? Math.min(best, value) : Math.max(best, value);
    return `${x.place(place + 1)},${y.place(best)}`;
  });
  const dots = sorted.length > MOST_DRAWN ? [] : sorted.map((row, place) => svg("circle", { cx: x.place(place + 1), cy: y.place(Number(row[name])), r: 3, class: "point", "data-key": row.key }, svg("title", {}, nameOfKey(String(row.key)))));
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${name} of each job and the best so far, ${short(best)} in the end` },
    y.ticks.map((value) => [svg("path", { d: `M ${LEFT} ${y.place(value)} H ${WIDTH - 4}`, class: "gridline" }), svg("text", { x: LEFT - 6, y: y.place(value) + 4, "text-anchor": "end" }, tick(value))]),
    x.ticks.map((value) => svg("text", { x: x.place(value), y: HEIGHT - EDGE + 22, "text-anchor": "middle" }, tick(value))),
    svg("path", { d: `M ${LEFT} 20 V ${HEIGHT - EDGE + 8} H ${WIDTH - 4}`, class: "axis" }), dots, svg("polyline", { points: line.join(" "), class: "line best" }));
}

/** @param {Record<string, number>} importance @param {(name: string) => void} choose */
function drawShares(importance, choose) {
  const shown = Object.entries(importance).slice(0, MOST_AXES);
  if (!shown.length) return h("p", { class: "soft" }, "Eight results with parameters that vary are needed.");
  return h("div", { class: "shares", role: "list" }, shown.map(([name, share]) => h("div", { role: "listitem" },
    h("button", { type: "button", class: "plain", title: `draw over ${name}`, onclick: () => choose(name) }, name),
    h("meter", { min: 0, max: 1, value: share, "aria-label": `${name}: ${Math.round(share * 100)} %` }), h("span", { class: "soft" }, `${Math.round(share * 100)} %`))));
}

/** @param {Row[]} rows @param {Column[]} columns the parameters @param {string} up @param {(name: string) => void} choose */
function drawSlices(rows, columns, up, choose) {
  const [width, height] = [170, 110];
  const values = rows.map((row) => row[up]).filter((value) => typeof value === "number");
  const y = scaled(Math.min(...values), Math.max(...values), false, height - 18, 6);
  return columns.slice(0, MOST_AXES).map((column) => {
    const x = scale(column, wantsLog(column.min, column.max), 6, width - 6);
    return svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", class: "slice", "aria-label": `${up} over ${column.name}`, onclick: () => choose(column.name) },
      svg("rect", { x: 1, y: 1, width: width - 2, height: height - 16, class: "frame" }),
      rows.flatMap((row) => (typeof row[up] === "number" && typeof row[column.name] === "number" ? [svg("circle", { cx: x.place(Number(row[column.name])), cy: y.place(Number(row[up])), r: 2.5, class: "point" })] : [])),
      svg("text", { x: width / 2, y: height - 3, "text-anchor": "middle", class: "name" }, column.name));
  });
}

/** @param {Row[]} rows @param {Set<Row>} inside @param {Column[]} columns @param {Ranges} ranges @param {() => void} draw @param {Row | undefined} best @param {string} last the axis at the right */
function drawParallel(rows, inside, columns, ranges, draw, best, last) {
  const varying = columns.filter((column) => column.min !== column.max);
  const end = varying.filter((column) => column.name === last);
  const axes = [...varying.filter((column) => column.name !== last).slice(0, MOST_AXES - end.length), ...end];
  if (axes.length < 2) return h("p", { class: "soft" }, "Two columns of numbers that vary are needed.");
  const step = (WIDTH - 120) / (axes.length - 1);
  const scales = axes.map((column) => scale(column, wantsLog(column.min, column.max), HEIGHT - 60, 28));
  const lines = [...rows].sort((one, other) => Number(inside.has(one)) - Number(inside.has(other)) || Number(one === best) - Number(other === best)).flatMap((row) =>
    pieces(row, axes).map((piece) => svg("polyline", {
      points: piece.map((place) => `${60 + place * step},${scales[place]?.place(Number(row[axes[place]?.name ?? ""]))}`).join(" "), class: `line${inside.has(row) ? "" : " out"}${row === best ? " best" : ""}`, "data-key": row.key,
    }, svg("title", {}, nameOfKey(String(row.key))))));
  const longest = Math.max(5, Math.floor(step / 7.5));
  const posts = axes.map((column, place) => {
    const range = ranges.get(column.name);
    const [high = 0, low = 0] = range ? [scales[place]?.place(range[1]), scales[place]?.place(range[0])] : [];
    const name = column.name.replace(/^result\./, "");
    return svg("g", {}, svg("path", { d: `M ${60 + place * step} 28 V ${HEIGHT - 60}`, class: "axis" }),
      range && svg("rect", { x: 52 + place * step, y: high, width: 16, height: Math.max(2, low - high), class: "brush" }),
      svg("text", { x: 60 + place * step, y: HEIGHT - (place % 2 && axes.length > 5 ? 8 : 24), "text-anchor": "middle", class: "name" }, name.length > longest * (axes.length > 5 ? 2 : 1) ? `${name.slice(0, longest * (axes.length > 5 ? 2 : 1) - 1)}…` : name, svg("title", {}, column.name)),
      svg("text", { x: 60 + place * step, y: HEIGHT - 43, "text-anchor": "middle", class: "soft" }, tick(column.min)),
      svg("text", { x: 60 + place * step, y: 18, "text-anchor": "middle", class: "soft" }, tick(column.max)));
  });
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `parallel coordinates of ${axes.map((column) => column.name).join(", ")}` }, lines, posts);
  brush(picture, ([x1, y1], [, y2]) => {
    const place = Math.max(0, Math.min(axes.length - 1, Math.round((x1 - 60) / step)));
    const [column, at] = [axes[place], scales[place]];
    if (column && at) ranges.set(column.name, ordered(at.value(y1), at.value(y2)));
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
