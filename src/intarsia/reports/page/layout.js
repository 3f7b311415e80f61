// Places of items: each open group is laid out by itself, the innermost first, so that no layout has many items.
// A group's lines have points from the group's corner; those of a layout that is shared are not changed.
const HEADER = 24, PADDING = 12, PORT = 4, MOST_TARGETS = 6, NAME_ROOM = 280, LEAST_WIDTH = 70, MOST_WIDTH = 250;
const FONTS = {plain: "12px system-ui, sans-serif", strong: "600 12px system-ui, sans-serif", small: "10.5px system-ui, sans-serif"};
const pen = document.createElement("canvas").getContext("2d"), widths = new Map();

function widthOf(text, font) { // as page.css has the fonts
  const key = `${font} ${text}`;
  if (!widths.has(key)) { pen.font = FONTS[font]; widths.set(key, Math.ceil(pen.measureText(text).width)); }
  return widths.get(key);
}

function shortened(text, font, room) {
  if (widthOf(text, font) <= room) return text;
  let [least, most] = [0, text.length];
  while (least < most) {
    const middle = Math.ceil((least + most) / 2);
    if (widthOf(`${text.slice(0, middle)}\u2026`, font) <= room) least = middle; else most = middle - 1;
  }
  return `${text.slice(0, least)}\u2026`;
}

function layOut(group, textsOf) {
  for (const item of group.items) {
    if (item.kind === "group" && item.open) { layOut(item, textsOf); continue; }
    const [name, below] = textsOf(item);
    const wide = item.kind === "group";
    const needed = Math.max(widthOf(name, wide ? "strong" : "plain") + (wide ? 38 : 20), widthOf(below, "small") + 20);
    item.w = Math.max(LEAST_WIDTH, Math.min(MOST_WIDTH, needed));
    item.h = below ? 40 : 26;
  }
  const targets = new Map();
  for (const {from} of group.edges.values()) targets.set(from, (targets.get(from) || 0) + 1);
  const all = [...group.edges.values()].map(edge => ({...edge, port: false, far: targets.get(edge.from) > MOST_TARGETS}));
  const lines = all.filter(line => !line.far); // a mask that all layers read would cross the whole picture
  const placed = new Set(lines.flatMap(line => [line.from, line.to]));
  const ports = group.parent ? portsOf(group, lines, placed) : [];
  const alone = group.items.filter(item => !placed.has(item));
  const joined = group.items.filter(item => placed.has(item));
  const size = placeJoined([...joined, ...ports], lines), above = placeAlone(alone, Math.max(size.w, 420));
  const down = above.h && size.h ? above.h + 24 : 0, inner = {w: Math.max(size.w, above.w), h: Math.max(above.h, down + size.h)};
  for (const item of [...joined, ...ports]) { item.x += (inner.w - size.w) / 2; item.y += down; }
  for (const line of lines) line.points = line.points.map(({x, y}) => ({x: x + (inner.w - size.w) / 2, y: y + down}));
  const header = group.parent ? HEADER : 0, padding = group.parent ? PADDING : 0;
  group.w = Math.max(inner.w + 2 * padding, group.parent ? headerWidth(textsOf(group)) : 0);
  const left = (group.w - inner.w) / 2, top = header + padding;
  for (const item of [...group.items, ...ports]) { item.x += left; item.y += top; }
  for (const line of lines) line.points = line.points.map(({x, y}) => ({x: x + left, y: y + top}));
  group.h = inner.h + header + 2 * padding;
  for (const line of all) if (line.far) line.points = straight(line.from, line.to);
  group.lines = [...lines, ...all.filter(line => line.far)];
  group.ports = ports;
}

function portsOf(group, lines, placed) { // where values come in and go out; only ends of the group's own lines are joined to them
  const read = new Set(lines.map(line => line.to)), reading = new Set(lines.map(line => line.from));
  const enters = [...group.enters].filter(item => !read.has(item)), leaves = [...group.leaves].filter(item => !reading.has(item));
  const made = [];
  const port = (kind, items) => {
    if (!items.length) return;
    const end = {kind, id: `${group.id}${kind}`, w: PORT, h: PORT};
    made.push(end);
    items.forEach(item => {
      lines.push(kind === "enter" ? {from: end, to: item, count: 1, port: true} : {from: item, to: end, count: 1, port: true});
      placed.add(item);
    });
  };
  port("enter", enters);
  port("leave", leaves);
  return made;
}

function placeJoined(items, lines) {
  if (!items.length) return {w: 0, h: 0};
  const numbers = new Map(items.map((item, i) => [item, `n${i}`]));
  const nodes = items.map((item, i) => ({v: `n${i}`, width: item.w, height: item.h}));
  const edges = lines.map(line => ({v: numbers.get(line.from), w: numbers.get(line.to), minlen: 1, weight: line.port ? 1 : 2,
    width: 0, height: 0, labeloffset: 10, labelpos: "r"}));
  const key = JSON.stringify([nodes.map(({width, height}) => [width, height]), edges.map(({v, w, weight}) => [v, w, weight])]);
  if (!known.has(key)) known.set(key, layoutOf(nodes, edges));
  const {w, h, places, ways} = known.get(key);
  items.forEach((item, i) => { [item.x, item.y] = places[i]; });
  lines.forEach((line, i) => { line.points = ways[i]; });
  return {w, h};
}

const known = new Map(); // layouts: many layers are alike, and what opens leaves most groups as they were

function layoutOf(nodes, edges) {
  const options = {nodesep: 18, ranksep: 30, edgesep: 12, rankdir: "TB"};
  (dagreLayout || plainLayout)(nodes, edges, options, {});
  let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
  nodes.forEach(({x, y, width, height}) => {
    left = Math.min(left, x - width / 2); right = Math.max(right, x + width / 2);
    top = Math.min(top, y - height / 2); bottom = Math.max(bottom, y + height / 2);
  });
  edges.forEach(edge => edge.points.forEach(({x}) => { left = Math.min(left, x); right = Math.max(right, x); }));
  const places = nodes.map(({x, y, width, height}) => [x - width / 2 - left, y - height / 2 - top]);
  const ways = edges.map(edge => edge.points.map(({x, y}) => ({x: x - left, y: y - top})));
  return {w: right - left, h: bottom - top, places, ways};
}

function placeAlone(items, width) { // in rows: nothing joins them
  let [x, y, row, widest] = [0, 0, 0, 0];
  for (const item of items) {
    if (x && x + item.w > width) { x = 0; y += row + 14; row = 0; }
    [item.x, item.y] = [x, y];
    x += item.w + 14;
    row = Math.max(row, item.h);
    widest = Math.max(widest, x - 14);
  }
  return {w: widest, h: items.length ? y + row : 0};
}

function headerWidth([name, below]) {
  return Math.min(widthOf(name, "strong"), NAME_ROOM) + widthOf(below, "small") + 56;
}

function straight(from, to) {
  const [a, b] = [{x: from.x + from.w / 2, y: from.y + from.h}, {x: to.x + to.w / 2, y: to.y}];
  return [a, {x: (a.x + b.x) / 2, y: (a.y + b.y) / 2}, b];
}

// Without the library: items in ranks by the longest way to them, each rank ordered by the mean place of what it reads.
function plainLayout(nodes, edges, options) {
  const byId = new Map(nodes.map(node => [node.v, node])), order = new Map(nodes.map((node, i) => [node.v, i]));
  const forward = edges.filter(edge => edge.v !== edge.w);
  nodes.forEach(node => { node.rank = 0; });
  for (let changed = true, rounds = 0; changed && rounds < nodes.length; rounds += 1) {
    changed = false;
    for (const {v, w} of forward) {
      if (order.get(v) < order.get(w) && byId.get(w).rank <= byId.get(v).rank) { byId.get(w).rank = byId.get(v).rank + 1; changed = true; }
    }
  }
  const ranks = [];
  nodes.forEach(node => { (ranks[node.rank] = ranks[node.rank] || []).push(node); });
  let y = 0;
  for (const rank of ranks.filter(Boolean)) {
    rank.forEach(node => {
      const read = forward.filter(edge => edge.w === node.v && byId.get(edge.v).x !== undefined).map(edge => byId.get(edge.v).x);
      node.wanted = read.length ? read.reduce((a, b) => a + b, 0) / read.length : 0;
    });
    rank.sort((a, b) => a.wanted - b.wanted);
    const whole = rank.reduce((sum, node) => sum + node.width + options.nodesep, -options.nodesep);
    const height = Math.max(...rank.map(node => node.height));
    let x = rank.reduce((sum, node) => sum + node.wanted, 0) / rank.length - whole / 2;
    rank.forEach(node => { node.x = x + node.width / 2; node.y = y + height / 2; x += node.width + options.nodesep; });
    y += height + options.ranksep;
  }
  edges.forEach(edge => {
    const [a, b] = [byId.get(edge.v), byId.get(edge.w)];
    edge.points = [{x: a.x, y: a.y + a.height / 2}, {x: (a.x + b.x) / 2, y: (a.y + b.y) / 2}, {x: b.x, y: b.y - b.height / 2}];
  });
}
