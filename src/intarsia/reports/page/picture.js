// The picture: SVG elements for what is open, moved and scaled by one transform.
const SVG = "http:" + "//www.w3.org/2000/svg";
const FAR = 0.45, FARTHER = 0.22, LEAST_SCALE = 0.01, MOST_SCALE = 4;

function svgElement(name, attributes, parent) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (parent) parent.append(made);
  return made;
}

class Picture {
  constructor(svg, tree, data, actions) {
    Object.assign(this, {svg, tree, data, actions, scale: 1, x: 0, y: 0, elements: new Map(), lines: [], selected: null, found: null});
    svgElement("path", {d: "M0 0L8 4L0 8z", class: "arrow"}, svgElement("marker", {id: "arrow", viewBox: "0 0 8 8", refX: 8, refY: 4,
      markerWidth: 9, markerHeight: 9, markerUnits: "userSpaceOnUse", orient: "auto"}, svgElement("defs", {}, svg)));
    this.layer = svgElement("g", {}, svg);
    this.watchPointer();
    this.watchKeys();
    this.most = Math.max(1e-9, ...data.nodes.map(row => this.heatOf(row[TIME] || 0, row[BEFORE])));
    openFirst(tree.root);
    this.draw();
    this.fit();
  }

  // The time that colours an item: its own, or what changed since the profile before.
  heatOf(ms, before) { return this.compares ? Math.abs(ms - (before || 0)) : ms; }
  get compares() { return Boolean(this.data.profile) && this.data.profile.before !== null; }

  texts(item) {
    const {strings, nodes, values} = this.data;
    if (item.kind === "group") {
      const time = this.data.profile ? ` \u00b7 ${timeText(item.ms)}` : "";
      return [item.name, `${item.count} node${item.count === 1 ? "" : "s"}${time}`];
    }
    if (item.kind === "node") {
      const row = nodes[item.node], out = row[OUTPUTS][0];
      const shape = out === undefined ? "" : shapeOf(strings[values[out][1]]);
      const time = this.data.profile && row[TIME] ? timeText(row[TIME]) : "";
      return [strings[row[OP]].replace(/^.*::/, ""), [item.layer, shape, time].filter(Boolean).join(" \u00b7 ") || strings[row[KIND]]];
    }
    return [strings[values[item.value][0]], shapeOf(strings[values[item.value][1]])];
  }

  draw() {
    layOut(this.tree.root, item => this.texts(item));
    this.layer.replaceChildren();
    this.elements.clear();
    this.lines = [];
    this.drawGroup(this.tree.root, this.layer, 0, 0);
    this.mark();
  }

  drawGroup(group, parent, x, y) {
    group.lines.forEach(line => this.drawLine(line, parent, x, y));
    for (const item of group.items) {
      item.left = x + item.x;
      item.top = y + item.y;
      const element = this.drawItem(item, parent);
      if (item.kind === "group" && item.open) this.drawGroup(item, element, item.left, item.top);
    }
  }

  drawLine(line, parent, x, y) {
    const points = line.points.map(point => [x + point.x, y + point.y]);
    const classes = ["edge", ...(line.count > 1 ? ["many"] : []), ...(line.port ? ["port"] : []),
      ...(line.far ? ["distant"] : [])].join(" ");
    const end = line.port && line.to.kind === "leave" ? {} : {"marker-end": "url(#arrow)"};
    const element = svgElement("path", {d: smooth(points), class: classes, ...end}, parent);
    if (!line.port) {
      const {strings, values} = this.data, [name, type] = values[line.value];
      const more = line.count > 1 ? ` and ${line.count - 1} more` : "";
      svgElement("title", {}, element).textContent = `${strings[name]}: ${strings[type]}${more}`;
    }
    this.lines.push({line, element});
  }

  drawItem(item, parent) {
    const group = item.kind === "group", {left, top, w, h} = item;
    const kinds = {group: item.open ? "open" : "closed", node: "node", input: "end", output: "end"};
    const classes = ["item", kinds[item.kind], ...(group && item.inBody ? ["body"] : [])].join(" ");
    const element = svgElement("g", {class: classes, tabindex: 0, role: "button", "data-id": item.id}, parent);
    svgElement("rect", {class: "frame", x: left, y: top, width: w, height: h, rx: item.kind === "node" || group ? 4 : 13}, element);
    this.elements.set(item.id, {element, item});
    const [name, below] = this.texts(item), open = group && item.open;
    element.setAttribute("aria-label", `${name} ${below}`);
    if (!open) this.drawHeat(item, element);
    if (item.kind === "node" || group) this.drawStripe(item, element);
    const font = group ? "strong" : "plain", shown = shortened(name, font, open ? NAME_ROOM : w - (group ? 36 : 18));
    const text = (content, x, y, kind) => { svgElement("text", {x, y, class: kind}, element).textContent = content; };
    text(shown, left + 12, top + 17, group ? "name" : "");
    if (open) text(below, left + 24 + widthOf(shown, font), top + 17, "dim");
    else if (below) text(shortened(below, "small", w - 18), left + 12, top + 32, "dim");
    if (group) text(item.open ? "\u2212" : "+", left + w - 16, top + 17, "name sign");
    svgElement("title", {}, element).textContent = `${this.actions.titleOf(item)}\n${below}`;
    return element;
  }

  drawStripe(item, element) {
    const {left, top, h} = item, shares = item.kind === "group" ? [...item.providers] : [[this.data.nodes[item.node][PROVIDER], 1]];
    const whole = shares.reduce((sum, [, count]) => sum + count, 0) || 1;
    let y = top;
    for (const [provider, count] of shares.sort(([a], [b]) => a - b)) {
      const height = h * count / whole;
      svgElement("rect", {x: left, y, width: 5, height, style: `fill:${colourOf(provider)}`}, element);
      y += height;
    }
  }

  drawHeat(item, element) {
    if (!this.data.profile || !(item.kind === "group" || item.kind === "node")) return;
    const row = item.kind === "node" ? this.data.nodes[item.node] : null;
    const [ms, before] = row ? [row[TIME] || 0, row[BEFORE] || 0] : [item.ms, item.before];
    const part = Math.min(1, this.heatOf(ms, before) / (item.kind === "group" ? Math.max(this.most, this.data.profile.ms / 4) : this.most));
    if (part < 0.02) return;
    const fill = !this.compares ? "heat" : ms > before ? "worse" : "better";
    svgElement("rect", {class: "heat", x: item.left + 1, y: item.top + 1, width: item.w - 2, height: item.h - 2, rx: 4,
      style: `fill:var(--${fill});opacity:${(0.06 + 0.32 * Math.sqrt(part)).toFixed(3)}`}, element);
  }

  // Moving and scaling.
  place() {
    this.layer.setAttribute("transform", `translate(${this.x.toFixed(2)} ${this.y.toFixed(2)}) scale(${this.scale.toFixed(5)})`);
    this.svg.classList.toggle("far", this.scale < FAR);
    this.svg.classList.toggle("farther", this.scale < FARTHER);
  }

  fit() {
    const {width, height} = this.svg.getBoundingClientRect(), {w, h} = this.tree.root;
    const whole = Math.min((width - 24) / w, (height - 24) / h, 1.1);
    this.scale = Math.max(LEAST_SCALE, whole);
    if (this.scale < 0.5 && !this.wasFitted) this.scale = Math.min(0.75, Math.max(0.5, (width - 24) / w)); // first: what can be read
    this.wasFitted = true;
    this.x = (width - w * this.scale) / 2;
    this.y = Math.max(12, (height - h * this.scale) / 2);
    this.place();
  }

  zoom(factor, x, y) {
    const {width, height} = this.svg.getBoundingClientRect();
    const [cx, cy] = x === undefined ? [width / 2, height / 2] : [x, y];
    const scale = Math.max(LEAST_SCALE, Math.min(MOST_SCALE, this.scale * factor));
    this.x = cx - (cx - this.x) * scale / this.scale;
    this.y = cy - (cy - this.y) * scale / this.scale;
    this.scale = scale;
    this.place();
  }

  watchPointer() {
    const svg = this.svg;
    let from = null, moved = false;
    svg.addEventListener("wheel", event => {
      event.preventDefault();
      const box = svg.getBoundingClientRect();
      this.zoom(Math.exp(-Math.max(-120, Math.min(120, event.deltaY)) / 400), event.clientX - box.left, event.clientY - box.top);
    }, {passive: false});
    svg.addEventListener("pointerdown", event => {
      from = {x: event.clientX - this.x, y: event.clientY - this.y, at: [event.clientX, event.clientY], target: event.target};
      moved = false;
    });
    svg.addEventListener("pointermove", event => {
      if (!from) return;
      if (!moved && Math.hypot(event.clientX - from.at[0], event.clientY - from.at[1]) < 4) return;
      if (!moved) svg.setPointerCapture(event.pointerId);
      moved = true;
      svg.classList.add("dragged");
      this.x = event.clientX - from.x;
      this.y = event.clientY - from.y;
      this.place();
    });
    const end = event => {
      svg.classList.remove("dragged");
      if (from && !moved && event.type === "pointerup") this.clicked(from.target);
      from = null;
    };
    svg.addEventListener("pointerup", end);
    svg.addEventListener("pointercancel", end);
  }

  clicked(target) {
    const element = target.closest ? target.closest(".item") : null;
    if (!element) { this.actions.select(null); return; }
    const {item} = this.elements.get(element.dataset.id);
    this.actions.select(item);
    if (item.kind === "group") this.toggle(item);
  }

  watchKeys() {
    this.svg.addEventListener("keydown", event => {
      const steps = {ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60]};
      if (steps[event.key]) { this.x += steps[event.key][0]; this.y += steps[event.key][1]; this.place(); }
      else if (event.key === "+" || event.key === "=") this.zoom(1.25);
      else if (event.key === "-") this.zoom(0.8);
      else if (event.key === "0") this.fit();
      else if ((event.key === "Enter" || event.key === " ") && event.target.closest(".item")) this.clicked(event.target);
      else return;
      event.preventDefault();
    });
  }

  toggle(group) { // what was clicked stays under the pointer
    const [left, top] = [group.left, group.top];
    group.open = !group.open;
    this.draw();
    this.x += (left - group.left) * this.scale;
    this.y += (top - group.top) * this.scale;
    this.place();
    this.elements.get(group.id).element.focus({preventScroll: true});
  }

  setAll(open) {
    setOpen(this.tree.root, open);
    this.draw();
    this.fit();
  }

  reveal(item) {
    let opened = false;
    for (let group = item.parent; group; group = group.parent) { opened = opened || !group.open; group.open = true; }
    if (opened) this.draw();
    const {width, height} = this.svg.getBoundingClientRect();
    if (this.scale < 0.6) this.scale = 0.8;
    this.x = width / 2 - (item.left + item.w / 2) * this.scale;
    this.y = height / 2 - (item.top + Math.min(item.h, height / this.scale) / 2) * this.scale;
    this.place();
  }

  select(item) { this.selected = item; this.mark(); }
  find(nodes) { this.found = nodes; this.mark(); }

  mark() {
    const chosen = new Set();
    for (let at = this.selected; at && !chosen.size; at = at.parent) if (this.elements.has(at.id)) chosen.add(at.id);
    this.elements.forEach(({element, item}) => {
      element.classList.toggle("selected", chosen.has(item.id));
      element.classList.toggle("found", Boolean(this.found) && this.holdsFound(item));
    });
    this.lines.forEach(({line, element}) =>
      element.classList.toggle("of-selected", chosen.has(line.from.id) || chosen.has(line.to.id)));
  }

  holdsFound(item) {
    if (item.kind === "node") return this.found.has(item.node);
    return item.kind === "group" && !item.open && item.items.some(inner => this.holdsFound(inner));
  }
}

function smooth(points) {
  const [[x, y], ...rest] = points;
  let path = `M${x.toFixed(1)} ${y.toFixed(1)}`;
  rest.forEach(([px, py], i) => {
    if (i === rest.length - 1) { path += `L${px.toFixed(1)} ${py.toFixed(1)}`; return; }
    const [nx, ny] = rest[i + 1], [ex, ey] = i === rest.length - 2 ? [px * 0.35 + nx * 0.65, py * 0.35 + ny * 0.65] : [(px + nx) / 2, (py + ny) / 2];
    path += `Q${px.toFixed(1)} ${py.toFixed(1)} ${ex.toFixed(1)} ${ey.toFixed(1)}`;
  });
  return path;
}

function colourOf(provider) { return `var(--p${provider < 0 ? -1 : provider % 8})`; }

function shapeOf(type) { // "float[1,64,batch]" is "1×64×batch"
  const found = /\[(.*)\]$/.exec(type);
  if (!found) return type;
  return found[1] ? found[1].split(/, */).join("\u00d7") : "scalar";
}

function timeText(ms) {
  if (!ms) return "0 ms";
  return ms >= 100 ? `${ms.toFixed(0)} ms` : ms >= 1 ? `${ms.toFixed(2)} ms` : ms >= 0.01 ? `${ms.toFixed(3)} ms` : `${(ms * 1000).toPrecision(2)} \u00b5s`;
}
