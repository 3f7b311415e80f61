// The graph as a tree: layers and bodies are groups, and a group of many items is cut into chunks. Each edge belongs to the
// innermost group that holds both of its ends, and joins two items of it.
const MOST_ITEMS = 100, CHUNK = 40, FIRST_SHOWN = 110, FEW_SHOWN = 6, FEW_ENDS = 8;
const NAME = 0, OP = 1, PROVIDER = 2, KIND = 3, KERNEL = 4, NOTE = 5, ORIGIN = 6, GROUP = 7, REFUSALS = 8, INPUTS = 9,
  OUTPUTS = 10, FLOP = 11, NBYTES = 12, ESTIMATED = 13, TIME = 14, PART_OF = 15, BEFORE = 16; // of a node's row

class Group {
  constructor(name, parent, inBody) {
    Object.assign(this, {kind: "group", name, parent, inBody, items: [], open: false, edges: new Map(), enters: new Set(),
      leaves: new Set(), count: 0, ms: 0, before: 0, flop: 0, nbytes: 0, providers: new Map()});
  }
  get path() {
    const names = [];
    for (let at = this; at && at.name; at = at.parent) names.unshift(at.name);
    return joinedPath(names);
  }
}

function joinedPath(names) { // "layers" goes without saying before "layers.3"
  return names.filter((name, i) => i + 1 === names.length || !names[i + 1].startsWith(`${name}.`)).join(" / ");
}

function buildTree(data) {
  const root = new Group("", null, false); // data.picture is false of two profiles without a graph
  root.open = true;
  const groups = data.groups.map(() => null);
  const groupOf = number => {
    if (number < 0) return root;
    if (!groups[number]) {
      const [parent, name, inBody] = data.groups[number];
      const made = new Group(data.strings[name], groupOf(parent), Boolean(inBody));
      made.parent.items.push(made);
      groups[number] = made;
    }
    return groups[number];
  };
  const leaves = new Array(data.nodes.length).fill(null);
  data.nodes.forEach((row, i) => {
    if (data.picture === false || row[GROUP] === -2 || data.strings[row[KIND]] === "folded") return; // a copy, say; or a node that is gone
    const parent = groupOf(row[GROUP]);
    leaves[i] = {kind: "node", node: i, parent};
    parent.items.push(leaves[i]);
  });
  if (data.picture === false) return {root, leaves};
  joinChains(root);
  addEnds(root, data, leaves);
  cut(root);
  number(root);
  data.edges.forEach(([from, to, value]) => leaves[from] && leaves[to] && join(leaves[from], leaves[to], value));
  root.ends.forEach(({item, others, isInput, value}) =>
    others.forEach(other => isInput ? join(item, other, value) : join(other, item, value)));
  sumUp(root, data);
  return {root, leaves};
}

function joinChains(group) { // a layer that holds one layer alone, and that one, are one; a layer of one node is the node
  group.items = group.items.map(item => {
    if (item.kind !== "group") return item;
    joinChains(item);
    const [inner] = item.items;
    if (item.items.length !== 1 || item.inBody || inner.inBody) return item;
    if (inner.kind === "group") inner.name = `${item.name} / ${inner.name}`;
    else inner.layer = item.name;
    inner.parent = group;
    return inner;
  });
}

function addEnds(root, data, leaves) { // inputs stand in the innermost layer that holds all of their readers
  root.ends = [];
  const add = (value, others, isInput, parent) => {
    const item = {kind: isInput ? "input" : "output", value, parent};
    if (isInput) parent.items.unshift(item); else parent.items.push(item);
    root.ends.push({item, others, isInput, value});
  };
  data.inputs.forEach(([value, readers]) => {
    const found = readers.map(i => leaves[i]).filter(Boolean);
    add(value, found, true, found.map(leaf => leaf.parent).reduce(common, found.length ? found[0].parent : root));
  });
  data.outputs.forEach(([value, producer]) => {
    const leaf = producer >= 0 ? leaves[producer] : null;
    add(value, leaf ? [leaf] : [], false, leaf ? leaf.parent : root);
  });
}

function ancestors(item) {
  const found = [];
  for (let at = item; at; at = at.parent) found.push(at);
  return found;
}

function common(a, b) {
  const around = new Set(ancestors(a));
  return ancestors(b).find(group => around.has(group));
}

function cut(group) {
  group.items.forEach(item => item.kind === "group" && cut(item));
  while (group.items.length > MOST_ITEMS) {
    const ends = group.items.filter(item => item.kind === "input" || item.kind === "output"), apart = ends.length <= FEW_ENDS;
    const items = apart ? group.items.filter(item => !ends.includes(item)) : group.items, chunks = Math.ceil(items.length / CHUNK), size = Math.ceil(items.length / chunks);
    if (items.length <= 1) return;
    group.items = apart ? ends : [];
    for (let start = 0; start < items.length; start += size) {
      const part = items.slice(start, start + size), [first, last] = [part[0], part[part.length - 1]];
      const whole = `part ${start / size + 1} of ${chunks}`, named = first.kind === "group" && last.kind === "group";
      const made = new Group(named ? `${first.name} \u2026 ${last.name}` : whole, group, false);
      made.items = part;
      made.items.forEach(item => { item.parent = made; });
      group.items.push(made);
    }
  }
}

function number(root) {
  let next = 0;
  const visit = (item, depth) => {
    item.id = `i${next++}`;
    item.depth = depth;
    if (item.kind === "group") item.items.forEach(inner => visit(inner, depth + 1));
  };
  visit(root, 0);
}

function join(from, to, value) {
  let [a, b] = [from, to];
  while (a.parent !== b.parent) {
    if (a.depth >= b.depth && a.parent) { a.parent.leaves.add(a); a = a.parent; }
    else { b.parent.enters.add(b); b = b.parent; }
  }
  const edges = a.parent.edges, key = `${a.id}>${b.id}`, known = edges.get(key);
  if (known) known.count += 1; else edges.set(key, {from: a, to: b, count: 1, value});
}

function sumUp(group, data) {
  for (const item of group.items) {
    if (item.kind === "group") {
      sumUp(item, data);
      for (const name of ["count", "ms", "before", "flop", "nbytes"]) group[name] += item[name];
      item.providers.forEach((count, name) => group.providers.set(name, (group.providers.get(name) || 0) + count));
    } else if (item.kind === "node") {
      const row = data.nodes[item.node];
      group.count += 1;
      group.ms += row[TIME] || 0;
      group.before += row[BEFORE] || 0;
      group.flop += row[FLOP];
      group.nbytes += row[NBYTES];
      group.providers.set(row[PROVIDER], (group.providers.get(row[PROVIDER]) || 0) + 1);
    }
  }
}

function openFirst(root) { // level by level, as long as all of it can be read at once
  let level = root.items.filter(item => item.kind === "group"), shown = root.items.length;
  while (level.length) {
    const more = level.reduce((sum, group) => sum + group.items.length, 0);
    if (shown + more > FIRST_SHOWN && shown >= FEW_SHOWN) return;
    shown += more;
    level.forEach(group => { group.open = true; });
    level = level.flatMap(group => group.items.filter(item => item.kind === "group"));
  }
}

function setOpen(group, open) {
  group.items.forEach(item => item.kind === "group" && setOpen(item, open));
  if (group.parent) group.open = open;
}
