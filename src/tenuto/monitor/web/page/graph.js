// The graph of a group: a node for each task with its counts, or the surroundings of one job.
// Layers and order are computed by the server; this module only places boxes and lines.

import { get } from "./api.js";
import { h, put, svg } from "./dom.js";
import { empty, groupChoice, shortCounts, stateBar, stateMark, throttled } from "./parts.js";
import { address, nameOfKey, short, STATES } from "./text.js";

/** @import { Graph, GraphNode, Groups, Place, View } from "./types.js" */

const WIDE = 190;
const TALL = 80;
const [ACROSS, DOWN] = [70, 24];

/** @param {Place} place @returns {Promise<View>} */
export async function graph({ main, query }) {
  const around = query.get("around");
  const groups = /** @type {Groups} */ (await get("groups", { limit: 200 })).groups;
  const group = query.get("group") ?? groups[0]?.group ?? "";
  const picture = h("div", { class: "graph", tabindex: 0, role: "region", "aria-label": "Graph" });
  const words = h("p", { class: "soft" });
  let zoom = 1;
  /** @param {number} factor @param {MouseEvent} [at] the place that stays under the pointer */
  const scaleBy = (factor, at) => {
    const board = /** @type {HTMLElement | null} */ (picture.querySelector(".board"));
    if (!board) return;
    const before = zoom;
    zoom = Math.max(0.2, Math.min(3, zoom * factor));
    const { left, top } = picture.getBoundingClientRect();
    const [x, y] = at ? [at.clientX - left, at.clientY - top] : [picture.clientWidth / 2, picture.clientHeight / 2];
    board.style.setProperty("zoom", String(zoom));
    picture.scrollLeft = (picture.scrollLeft + x) * (zoom / before) - x;
    picture.scrollTop = (picture.scrollTop + y) * (zoom / before) - y;
  };
  const fit = () => {
    const board = /** @type {HTMLElement | null} */ (picture.querySelector(".board"));
    if (board) scaleBy(Math.min(1, (picture.clientWidth - 40) / parseFloat(board.style.width), (picture.clientHeight - 40) / Math.max(1, parseFloat(board.style.height))) / zoom);
  };
  picture.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    scaleBy(1.15 ** -Math.sign(event.deltaY), event);
  }, { passive: false });
  /** @type {[number, number] | null} */
  let dragged = null;
  picture.addEventListener("pointerdown", (event) => { if (!(event.target instanceof Element && event.target.closest(".node"))) dragged = [event.clientX + picture.scrollLeft, event.clientY + picture.scrollTop]; });
  picture.addEventListener("pointermove", (event) => { if (dragged && event.buttons) picture.scrollTo(dragged[0] - event.clientX, dragged[1] - event.clientY); });
  picture.addEventListener("pointerup", () => { dragged = null; });
  const load = async () => {
    const found = /** @type {Graph} */ (await get("graph", { group, around, depth: around ? 3 : undefined }));
    const jobs = found.nodes.reduce((sum, node) => sum + node.total, 0);
    put(words, around ? "around one job " : `by task, ${short(jobs)} jobs `, around && h("a", { href: address("graph", { group }) }, "by task"));
    drawGraph(picture, found, around, (node) => (around || node.id.includes("/") && node.total === 1 && node.id.includes(":")
      ? address("job", { key: node.id }) : address("jobs", { group, filter: `task=${quoted(node.task)}` })));
    if (zoom !== 1) scaleBy(1);
  };
  put(main, h("div", { class: "bar" }, h("h1", {}, "Graph"),
    groupChoice(groups, group, (value) => { location.hash = address("graph", { group: value }); }), words,
    h("button", { type: "button", "aria-label": "Zoom in", onclick: () => scaleBy(1.25) }, "+"), h("button", { type: "button", "aria-label": "Zoom out", onclick: () => scaleBy(0.8) }, "−"), h("button", { type: "button", onclick: fit }, "fit"),
    h("span", { class: "soft wide-only" }, "Ctrl and wheel zooms, drag moves")), picture);
  if (group) await load();
  else put(picture, empty("There is no run here yet.", "tenuto run script.py"));
  const again = throttled(() => load().catch(() => undefined), 1000);
  const narrow = matchMedia("(max-width: 640px)");
  narrow.addEventListener("change", again);
  return { close: () => narrow.removeEventListener("change", again), delta: again, reset: again };
}

/** @param {string} task */
const quoted = (task) => (/^[\w.]+$/.test(task) ? task : JSON.stringify(task));

/** @param {HTMLElement} picture @param {Graph} found @param {string | null} around @param {(node: GraphNode) => string} to */
function drawGraph(picture, found, around, to) {
  const isNarrow = matchMedia("(max-width: 640px)").matches;
  const [acrossStep, downStep] = isNarrow ? [WIDE + 12, TALL + 44] : [WIDE + ACROSS, TALL + DOWN];
  /** @param {GraphNode} node */
  const place = (node) => (isNarrow ? [node.order * acrossStep, node.layer * downStep] : [node.layer * acrossStep, node.order * downStep]);
  const places = new Map(found.nodes.map((node) => [node.id, place(node)]));
  const width = Math.max(WIDE, ...[...places.values()].map(([x = 0]) => x + WIDE)) + 4;
  const height = Math.max(TALL, ...[...places.values()].map(([, y = 0]) => y + TALL)) + 4;
  const lines = found.edges.map((edge) => {
    const [x1 = 0, y1 = 0] = places.get(edge.from) ?? [];
    const [x2 = 0, y2 = 0] = places.get(edge.to) ?? [];
    const [sx, sy, tx, ty] = isNarrow ? [x1 + WIDE / 2, y1 + TALL, x2 + WIDE / 2, y2] : [x1 + WIDE, y1 + TALL / 2, x2, y2 + TALL / 2];
    const bend = isNarrow ? `${sx} ${(sy + ty) / 2} ${tx} ${(sy + ty) / 2}` : `${(sx + tx) / 2} ${sy} ${(sx + tx) / 2} ${ty}`;
    return svg("path", { d: `M ${sx} ${sy} C ${bend} ${tx} ${ty}`, class: "edge", "marker-end": "url(#arrow)" });
  });
  const drawing = svg("svg", { width, height, "aria-hidden": "true" },
    svg("defs", {}, svg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8, orient: "auto" }, svg("path", { d: "M 0 0 L 8 4 L 0 8 z", class: "tip" }))),
    lines);
  const needs = new Map(found.nodes.map((node) => [node.id, node.label]));
  const boxes = found.nodes.map((node) => {
    const needed = found.edges.filter((edge) => edge.to === node.id).map((edge) => needs.get(edge.from) ?? edge.from);
    const box = h("a", { class: "node", href: to(node), "data-node": node.id, "data-key": node.id, "aria-current": node.id === around ? "true" : undefined },
      h("b", {}, found.collapsed ? node.label : nameOfKey(node.id)), stateBar(node.counts), h("span", { class: "counts" }, found.collapsed ? shortCounts(node.counts) : STATES.filter((state) => node.counts[state]).map((state) => stateMark(state))),
      needed.length > 0 && h("span", { class: "unseen" }, `needs ${needed.join(", ")}`));
    const [x = 0, y = 0] = places.get(node.id) ?? [];
    box.style.left = `${x}px`;
    box.style.top = `${y}px`;
    return box;
  });
  const board = h("div", { class: "board" }, drawing, boxes);
  board.style.width = `${width}px`;
  board.style.height = `${height}px`;
  const focused = document.activeElement?.getAttribute("data-node");
  put(picture, board);
  if (focused) for (const box of boxes) if (box.dataset.node === focused) box.focus();
  if (!found.nodes.length) put(picture, h("p", { class: "soft" }, "No jobs."));
}
