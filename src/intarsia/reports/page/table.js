// The table: rows that are sorted, filtered and grouped, of which those in view are in the document.
const ROW = 24, SPARE = 12;

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "class") made.className = value;
    else if (value !== undefined && value !== false) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

const numberText = value => Math.round(value).toLocaleString("en");
function countText(value) { // 12,345,678 as 12.3 M
  for (const [unit, size] of [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (value >= size) return `${(value / size).toPrecision(3).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "")} ${unit}`;
  }
  return String(Math.round(value));
}
function changeText(ms) { return `${ms > 0 ? "+" : ms < 0 ? "\u2212" : ""}${timeText(Math.abs(ms))}`; }

class Table {
  // unit: what a row is, for people. columns: {name, title, width, number, value(node), text(value, row), sum}
  constructor(holder, columns, groups, actions, unit) {
    Object.assign(this, {holder, columns, groups, actions, unit, sort: {column: -1, down: true}, open: new Set(), shown: [], rows: [],
      grouping: "", selected: -1, drawn: [0, 0]});
    const width = columns.reduce((sum, column) => sum + column.width, 0);
    this.head = element("thead", {}, element("tr", {}));
    this.body = element("tbody", {});
    const cols = columns.map(column => element("col", {style: `width:${column.width}px`}));
    this.table = element("table", {style: `width:${width}px`}, element("colgroup", {}, ...cols), this.head, this.body);
    holder.append(this.table);
    holder.addEventListener("scroll", () => this.scrolled());
    new ResizeObserver(() => this.scrolled()).observe(holder);
    this.drawHead();
  }

  drawHead() {
    const cells = this.columns.map((column, i) => {
      const sorted = this.sort.column === i ? (this.sort.down ? " \u25bc" : " \u25b2") : "";
      const order = this.sort.column === i ? (this.sort.down ? "descending" : "ascending") : "none";
      return element("th", {class: column.number ? "number" : "", title: column.title, "aria-sort": order, tabindex: 0,
        onclick: () => this.sortBy(i), onkeydown: event => event.key === "Enter" && this.sortBy(i)}, column.name + sorted);
    });
    this.head.firstChild.replaceChildren(...cells);
  }

  sortBy(i) {
    const same = this.sort.column === i, first = Boolean(this.columns[i].number);
    if (same && this.sort.down !== first) this.sort = {column: -1, down: true}; // as they run
    else this.sort = {column: i, down: same ? !this.sort.down : first};
    this.drawHead();
    this.update(this.shown);
  }

  update(shown, grouping = this.grouping) {
    this.shown = shown;
    if (grouping !== this.grouping) this.open.clear();
    this.grouping = grouping;
    this.rows = grouping ? this.grouped() : this.sorted(shown).map(node => ({node}));
    this.draw();
  }

  sorted(nodes) {
    const {column, down} = this.sort;
    if (column < 0) return nodes;
    const key = this.columns[column].value, sign = down ? -1 : 1, keys = new Map(nodes.map(node => [node, key(node)]));
    return [...nodes].sort((a, b) => sign * compared(keys.get(a), keys.get(b)) || a - b);
  }

  grouped() {
    const found = new Map();
    this.shown.forEach(node => {
      const name = this.groups[this.grouping](node);
      if (!found.has(name)) found.set(name, []);
      found.get(name).push(node);
    });
    const groups = [...found].map(([name, nodes]) => ({name, nodes, sums: this.sums(nodes)}));
    const {column, down} = this.sort, at = column < 0 ? this.columns.findIndex(c => c.sum) : column, sign = column < 0 || down ? -1 : 1;
    const key = group => this.columns[at].sum ? group.sums[at] : group.name;
    groups.sort((a, b) => sign * compared(key(a), key(b)));
    return groups.flatMap(group => [group, ...(this.open.has(group.name) ? this.sorted(group.nodes).map(node => ({node})) : [])]);
  }

  sums(nodes) {
    return this.columns.map(column => column.sum ? nodes.reduce((sum, node) => sum + (column.value(node) || 0), 0) : 0);
  }

  scrolled() { // what is in the document already stays
    const [start, end] = this.inView();
    if (start !== this.drawn[0] || end !== this.drawn[1]) this.draw();
  }

  inView() {
    const height = this.holder.clientHeight, start = Math.max(0, Math.floor(this.holder.scrollTop / ROW) - SPARE);
    const end = Math.min(this.rows.length, Math.ceil((this.holder.scrollTop + height) / ROW) + SPARE);
    return [start, end];
  }

  draw() {
    const [start, end] = this.drawn = this.inView();
    const space = count => element("tr", {class: "space"}, element("td", {colspan: this.columns.length, style: `height:${count * ROW}px`}));
    const drawn = this.rows.slice(start, end).map(row => row.nodes ? this.groupRow(row) : this.nodeRow(row.node));
    this.body.replaceChildren(...(start ? [space(start)] : []), ...drawn, ...(end < this.rows.length ? [space(this.rows.length - end)] : []));
  }

  nodeRow(node) {
    const cells = this.columns.map(column => {
      const value = column.value(node), text = column.text ? column.text(value, node) : String(value ?? "");
      const content = text instanceof Node ? text : document.createTextNode(text);
      return element("td", {class: [column.number ? "number" : "", column.kind ? column.kind(value) : ""].join(" "),
        title: text instanceof Node ? text.title : text}, content);
    });
    return element("tr", {class: `row${node === this.selected ? " selected" : ""}`, "data-node": node,
      onclick: () => this.actions.choose(node)}, ...cells);
  }

  groupRow(group) {
    const open = this.open.has(group.name);
    const cells = this.columns.map((column, i) => {
      if (i === 0) return element("td", {title: group.name}, `${open ? "\u25be" : "\u25b8"} ${group.name}`);
      if (i === 1) return element("td", {}, `${group.nodes.length} ${this.unit}${group.nodes.length === 1 ? "" : "s"}`);
      if (!column.sum) return element("td", {});
      return element("td", {class: ["number", column.kind ? column.kind(group.sums[i]) : ""].join(" ")}, column.text(group.sums[i], -1));
    });
    return element("tr", {class: "row group", "data-group": group.name, "aria-expanded": String(open), onclick: () => {
      if (open) this.open.delete(group.name); else this.open.add(group.name);
      this.update(this.shown);
    }}, ...cells);
  }

  select(node, scroll) {
    this.selected = node;
    const at = this.rows.findIndex(row => row.node === node);
    if (scroll && at >= 0) this.holder.scrollTop = Math.max(0, at * ROW - this.holder.clientHeight / 2);
    this.draw();
  }
}

function compared(a, b) {
  if (typeof a === "string" || typeof b === "string") return String(a ?? "").localeCompare(String(b ?? ""), "en", {numeric: true});
  return (a ?? -Infinity) - (b ?? -Infinity) || 0;
}
