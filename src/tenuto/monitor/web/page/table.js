// A grid of any number of jobs: only the rows in sight are in the document, a window of 200 is asked for.
// It knows columns and windows, not where rows come from nor what a row means.

import { h, put, safe, say } from "./dom.js";

/** @import { Job } from "./types.js" */
/** @typedef {{name: string, label: string, width: number, grow?: boolean, number?: boolean, sort?: string, text: (job: Job) => string}} Column */
/** @typedef {{matched: number, jobs: Job[]}} Window */

const [ROW, TWO_LINES] = [32, 54];
const WINDOW = 200;
const AROUND = 12;
const MOST_WINDOWS = 5;

/** @param {Job} job */
export const rowKey = (job) => `${job.group} ${job.key}`;

export class Table {
  /**
   * @param {object} given
   * @param {string} given.label
   * @param {(offset: number, limit: number) => Promise<Window>} given.load
   * @param {(job: Job) => void} given.open
   * @param {(job: Job) => void} given.point the row that the cursor is on now, by a click or by a key
   * @param {(job: Job) => string} given.second what a narrow screen shows below a row
   * @param {(marked: Map<string, Job>) => void} given.marks
   * @param {(field: string) => void} given.sort
   * @param {boolean} given.markable
   */
  constructor(given) {
    this.given = given;
    /** @type {Map<number, Job[]>} */
    this.windows = new Map();
    /** @type {Set<number>} */
    this.asked = new Set();
    /** @type {Map<string, Job>} */
    this.marked = new Map();
    /** @type {Map<number, HTMLElement>} */
    this.rows = new Map();
    /** @type {Column[]} */
    this.columns = [];
    this.sorted = "";
    this.matched = 0;
    this.active = 0;
    this.version = 0;
    this.row = ROW;
    this.anchor = 0;
    this.head = h("div", { role: "row", "aria-rowindex": 1, class: "row head" });
    this.body = h("div", { role: "rowgroup", class: "rows" });
    this.element = h(
      "div",
      {
        role: "grid", class: "grid", tabindex: 0, "aria-label": given.label, "aria-rowcount": 0, "aria-multiselectable": given.markable ? "true" : undefined,
        onscroll: () => this.draw(),
        onkeydown: (/** @type {KeyboardEvent} */ event) => this.pressed(event),
        onclick: (/** @type {MouseEvent} */ event) => this.clicked(event),
        ondblclick: () => this.openActive(),
      },
      h("div", { role: "rowgroup", class: "heads" }, this.head),
      this.body,
    );
    this.resized = new ResizeObserver(() => this.fit());
    this.resized.observe(this.element);
  }

  close() {
    this.resized.disconnect();
  }

  /** @param {Column[]} columns @param {string} sorted */
  setColumns(columns, sorted) {
    this.columns = columns;
    this.sorted = sorted;
    this.fit();
  }

  /** Columns are left out from the right until the rest has room; the first three stay. */
  fit() {
    const room = this.element.clientWidth - (this.given.markable ? 40 : 8);
    if (room <= 0) return;
    this.row = room < 480 ? TWO_LINES : ROW;
    this.element.classList.toggle("two", this.row === TWO_LINES);
    const shown = [...this.columns];
    const needed = () => shown.reduce((sum, column) => sum + column.width, 0);
    while (shown.length > 3 && needed() > room) shown.pop();
    this.shown = shown;
    const scale = Math.min(1, room / needed());
    const sizes = shown.map((column) => (column.grow ? `minmax(${Math.floor(column.width * scale)}px, 1fr)` : `${Math.floor(column.width * scale)}px`));
    this.element.style.setProperty("--columns", `${this.given.markable ? "2.25rem " : ""}${sizes.join(" ")}`);
    put(this.head, this.given.markable && h("span", { role: "columnheader", "aria-label": "mark" }), shown.map((column) => this.heading(column)));
    for (const row of this.rows.values()) row.remove();
    this.rows.clear();
    this.draw();
  }

  /** @param {Column} column */
  heading(column) {
    const [field, down] = this.sorted.startsWith("-") ? [this.sorted.slice(1), true] : [this.sorted, false];
    const is = field !== "" && field === column.sort;
    const order = is ? (down ? "descending" : "ascending") : undefined;
    return h(
      "span",
      { role: "columnheader", "aria-sort": order, class: column.number ? "number" : undefined },
      column.sort
        ? h("button", { type: "button", class: "sort", tabindex: -1, onclick: () => this.given.sort(column.sort ?? "") }, column.label, is && (down ? " ▼" : " ▲"))
        : column.label,
    );
  }

  /** Forgets what is known of the rows and asks again for what is in sight; the rows stay until the answer is there. */
  async refresh() {
    this.version += 1;
    this.asked.clear();
    const first = Math.floor(this.first() / WINDOW);
    const last = Math.floor(this.last() / WINDOW);
    const windows = first === last ? [first] : [first, last];
    await Promise.all(windows.map((number) => this.ask(number, true)));
  }

  first() {
    return Math.max(0, Math.floor(this.element.scrollTop / this.row) - AROUND);
  }

  last() {
    return Math.floor((this.element.scrollTop + this.element.clientHeight) / this.row) + AROUND;
  }

  /** @param {number} number @param {boolean} [anew] */
  async ask(number, anew = false) {
    if (!anew && (this.asked.has(number) || this.windows.has(number))) return;
    this.asked.add(number);
    const version = this.version;
    const found = await this.given.load(number * WINDOW, WINDOW);
    if (version !== this.version) return;
    if (anew) for (const other of [...this.windows.keys()]) if (Math.abs(other - number) > 1) this.windows.delete(other);
    this.asked.delete(number);
    this.matched = found.matched;
    this.windows.delete(number);
    this.windows.set(number, found.jobs);
    for (const other of this.windows.keys()) if (this.windows.size > MOST_WINDOWS && other !== number) this.windows.delete(other);
    this.active = Math.min(this.active, Math.max(0, this.matched - 1));
    this.draw();
  }

  /** @param {number} index */
  at(index) {
    return this.windows.get(Math.floor(index / WINDOW))?.[index % WINDOW];
  }

  draw() {
    this.body.style.height = `${this.matched * this.row}px`;
    this.element.setAttribute("aria-rowcount", String(this.matched + 1));
    const first = this.first();
    const last = Math.min(this.last(), this.matched - 1);
    for (const [index, row] of this.rows) {
      if (index < first || index > last) {
        row.remove();
        this.rows.delete(index);
      }
    }
    for (let index = first; index <= last; index++) {
      let row = this.rows.get(index);
      if (!row) {
        row = h("div", { role: "row", class: "row" });
        row.style.transform = `translateY(${index * this.row}px)`;
        this.rows.set(index, row);
        const after = this.rows.get(index + 1);
        this.body.insertBefore(row, after ?? null);
      }
      this.fill(row, index);
    }
    for (let number = Math.floor(first / WINDOW); number * WINDOW <= last; number++) void this.ask(number);
    const shown = this.rows.get(this.active);
    if (shown) this.element.setAttribute("aria-activedescendant", shown.id);
    else this.element.removeAttribute("aria-activedescendant");
  }

  /** @param {HTMLElement} row @param {number} index */
  fill(row, index) {
    const job = this.at(index);
    row.id = `row-${index}`;
    row.setAttribute("aria-rowindex", String(index + 2));
    row.classList.toggle("active", index === this.active);
    const shown = this.shown ?? [];
    const lead = this.given.markable ? 1 : 0;
    const isTwo = this.row === TWO_LINES;
    if (row.childElementCount !== shown.length + lead + Number(isTwo)) {
      const box = h("input", { type: "checkbox", tabindex: -1 });
      put(row, lead > 0 && h("span", { role: "gridcell", class: "mark" }, box), shown.map((column) =>
        h("span", { role: "gridcell", class: column.number ? "number" : `cell-${column.name.replace(/\W/g, "-")}` }, "")), isTwo && h("span", { role: "gridcell", class: "second soft" }));
    }
    if (isTwo && row.lastElementChild) say(row.lastElementChild, job ? this.given.second(job) : "");
    row.dataset.key = job?.key ?? "";
    row.dataset.state = job?.state ?? "";
    if (lead) {
      const isMarked = job !== undefined && this.marked.has(rowKey(job));
      const box = /** @type {HTMLInputElement} */ (row.firstElementChild?.firstElementChild);
      box.checked = isMarked;
      box.setAttribute("aria-label", job ? safe(`mark ${job.id}`) : "mark");
      row.setAttribute("aria-selected", String(isMarked));
    }
    shown.forEach((column, place) => {
      const cell = /** @type {HTMLElement} */ (row.children[place + lead]);
      say(cell, job ? column.text(job) : place === 0 ? "…" : "");
    });
  }

  /**
   * A row that changed, in place; false if it is not known here.
   * @param {Job} job
   */
  update(job) {
    const key = rowKey(job);
    if (this.marked.has(key)) this.marked.set(key, job);
    for (const [number, jobs] of this.windows) {
      const place = jobs.findIndex((one) => one.key === job.key && one.group === job.group);
      if (place < 0) continue;
      jobs[place] = job;
      const index = number * WINDOW + place;
      const row = this.rows.get(index);
      if (row) this.fill(row, index);
      return true;
    }
    return false;
  }

  /** @param {number} index */
  move(index) {
    this.active = Math.max(0, Math.min(index, this.matched - 1));
    const top = this.active * this.row;
    const head = this.head.offsetHeight;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop) this.element.scrollTop = top;
    else if (top + this.row + head > scrollTop + clientHeight) this.element.scrollTop = top + this.row + head - clientHeight;
    this.draw();
    const job = this.at(this.active);
    if (job) this.given.point(job);
  }

  openActive() {
    const job = this.at(this.active);
    if (job) this.given.open(job);
  }

  /** @param {KeyboardEvent} event */
  pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.row) - 2);
    const moves = new Map([
      ["ArrowDown", this.active + 1], ["ArrowUp", this.active - 1], ["PageDown", this.active + page],
      ["PageUp", this.active - page], ["Home", 0], ["End", this.matched - 1],
      ["j", this.active + 1], ["k", this.active - 1], ["g", 0], ["G", this.matched - 1],
    ]);
    const to = moves.get(event.key);
    const job = this.at(this.active);
    if (to !== undefined) this.move(to);
    else if (event.key === "Enter" && job && event.target === this.element) this.given.open(job);
    else if (event.key === " " && job && this.given.markable) this.mark(job);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {MouseEvent} event */
  clicked(event) {
    const target = /** @type {Element} */ (event.target);
    const row = target.closest(".rows .row");
    if (!row) return;
    this.active = Number(row.getAttribute("aria-rowindex")) - 2;
    const job = this.at(this.active);
    if (!job) return;
    if (this.given.markable && event.shiftKey) this.markTo(this.active);
    else if (target.closest(".mark")) this.mark(job);
    else if (!document.getSelection()?.toString()) {
      this.draw();
      this.given.point(job);
    }
    this.anchor = this.active;
  }

  /**
   * Marks every row that is held from the last click to this one.
   * @param {number} index
   */
  markTo(index) {
    document.getSelection()?.removeAllRanges();
    for (let at = Math.min(this.anchor, index); at <= Math.max(this.anchor, index); at++) {
      const job = this.at(at);
      if (job) this.marked.set(rowKey(job), job);
    }
    this.draw();
    this.given.marks(this.marked);
  }

  /** @param {Job[]} jobs */
  markAll(jobs) {
    for (const job of jobs) this.marked.set(rowKey(job), job);
    this.draw();
    this.given.marks(this.marked);
  }

  /** @param {Job} job */
  mark(job) {
    if (!this.marked.delete(rowKey(job))) this.marked.set(rowKey(job), job);
    this.draw();
    this.given.marks(this.marked);
  }

  unmark() {
    this.marked.clear();
    this.draw();
    this.given.marks(this.marked);
  }
}
