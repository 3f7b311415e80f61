// The page: what is chosen, filtered and shown, in the picture and in the table at once.
const $ = id => document.getElementById(id);

function columnsOf(data) {
  const {strings, nodes, values, profile} = data, text = i => node => strings[nodes[node][i]];
  const estimated = node => node >= 0 && nodes[node][ESTIMATED] ? "~" : "";
  const alone = data.picture === false;
  const columns = [
    {name: alone ? "kernel" : "node", width: alone ? 360 : 190, value: text(NAME), text: alone ? undefined : endOf}, {name: "operator", width: 110, value: text(OP)},
    {name: "provider", width: 112, value: node => providerName(data, nodes[node][PROVIDER]), text: (name, node) => providerCell(data, name, node)},
    ...(profile ? [{name: "time", title: "of a run, milliseconds", width: 84, number: true, sum: true, value: node => nodes[node][TIME],
      text: (ms, node) => ms === null ? (nodes[node][PART_OF] >= 0 ? "\u2033" : "") : ms || node >= 0 ? timeText(ms) : ""},
    {name: "share", title: "of a run's time", width: 70, number: true, sum: true, value: node => nodes[node][TIME],
      text: ms => ms ? `${(100 * ms / (profile.ms || 1)).toFixed(1)} %` : ""}] : []),
    ...(profile && profile.before !== null ? [{name: "before", width: 84, number: true, sum: true, value: node => nodes[node][BEFORE],
      text: (ms, node) => ms === null || (!ms && node < 0) ? "" : timeText(ms)},
    {name: "change", width: 108, number: true, sum: true, value: node => changeOf(nodes[node]),
      text: (ms, node) => ms === null || (!ms && node < 0) ? "" : changeText(ms), kind: ms => ms > 0.0005 ? "worse" : ms < -0.0005 ? "better" : ""}] : []),
    {name: "operations", width: 100, number: true, sum: true, value: node => nodes[node][FLOP],
      text: (flop, node) => flop ? estimated(node) + countText(flop) : ""},
    {name: "bytes", width: 74, number: true, sum: true, value: node => nodes[node][NBYTES],
      text: (nbytes, node) => nbytes ? estimated(node) + countText(nbytes) : ""},
    {name: "output", width: 150, value: node => { const [out] = nodes[node][OUTPUTS]; return out === undefined ? "" : strings[values[out][1]]; }},
    {name: "kernel", width: 170, value: text(KERNEL)}, {name: "layer", width: 150, value: node => layerPath(data, nodes[node][GROUP])},
    {name: "kind", width: 74, value: text(KIND)},
    {name: "why", title: "why other providers do not run it; all of it below", width: 420, value: node => whyText(data, nodes[node])},
  ];
  return columns.filter(({name}, i) => !alone || i === 0 || !["output", "why", "kernel"].includes(name));
}

function endOf(name) { return name.length > 24 ? element("span", {title: name}, `\u2026${name.slice(-22)}`) : name; }

function changeOf(row) { return row[TIME] === null && row[BEFORE] === null ? null : (row[TIME] || 0) - (row[BEFORE] || 0); }

function providerCell(data, name, node) {
  const short = name.replace(/ExecutionProvider$/, "");
  const cell = element("span", {title: name}, element("span", {class: "dot", style: `background:${colourOf(data.nodes[node][PROVIDER])}`}), short);
  return cell;
}

function whyText(data, row) {
  const reasons = refusalsOf(data, row).refused.map(no => `${no.provider.replace(/ExecutionProvider$/, "")}: ${no.reason}`);
  return [data.strings[row[NOTE]], ...reasons].filter(Boolean).join("; ");
}

class Page {
  constructor(data) {
    this.data = data;
    this.form = document.querySelector("form");
    this.all = data.nodes.map((_, i) => i);
    this.reason = null;
    const {strings, nodes} = data, text = i => node => strings[nodes[node][i]];
    this.groups = {layer: node => layerPath(data, nodes[node][GROUP]) || "(top)", operator: text(OP), kernel: node => text(KERNEL)(node) || "(none)",
      provider: node => providerName(data, nodes[node][PROVIDER]) || "(none)"};
    this.haystacks = this.all.map(node => [NAME, OP, KERNEL, ORIGIN, NOTE].map(i => strings[nodes[node][i]])
      .concat(layerPath(data, nodes[node][GROUP]), whyText(data, nodes[node])).join("\n").toLowerCase());
    this.tree = buildTree(data);
    const actions = {choose: node => this.choose(node, true), select: item => this.select(item), titleOf: item => this.titleOf(item),
      showReason: number => this.showReason(number)};
    this.table = new Table($("table"), columnsOf(data), this.groups, actions, data.picture === false ? "kernel" : "node");
    this.fillForm();
    this.summary();
    this.tabs(actions);
    this.filter();
    if (this.hasPicture) this.drawPicture(actions);
    else document.body.classList.add("no-graph");
  }

  get hasPicture() { return this.data.picture !== false && this.tree.root.items.length > 0; }

  drawPicture(actions) {
    this.picture = new Picture($("picture"), this.tree, this.data, actions);
    const buttons = {fit: () => this.picture.fit(), larger: () => this.picture.zoom(1.3), smaller: () => this.picture.zoom(1 / 1.3),
      "open-all": () => this.picture.setAll(true), "close-all": () => this.picture.setAll(false)};
    for (const [id, act] of Object.entries(buttons)) $(id).addEventListener("click", act);
    this.watchSplitter();
    const known = new Set(this.data.nodes.map(row => row[PROVIDER]));
    $("legend").append(...[...known].filter(p => p >= 0).sort().map(provider => element("span", {},
      element("span", {class: "dot", style: `background:${colourOf(provider)}`}), this.data.providers[provider].replace(/ExecutionProvider$/, ""))));
  }

  titleOf(item) {
    if (item.kind === "group") return item.path;
    const text = item.kind === "node" ? this.data.nodes[item.node][NAME] : this.data.values[item.value][0];
    return this.data.strings[text];
  }

  watchSplitter() {
    $("splitter").addEventListener("pointerdown", event => {
      event.preventDefault();
      const move = at => { $("graph").style.flexBasis = `${100 * Math.min(0.85, Math.max(0.15, at.clientX / innerWidth))}%`; };
      const end = () => { removeEventListener("pointermove", move); removeEventListener("pointerup", end); };
      addEventListener("pointermove", move);
      addEventListener("pointerup", end);
    });
  }

  fillForm() {
    const {strings, nodes, providers, refusals} = this.data, option = (value, text = value) => element("option", {value}, text);
    const distinct = values => [...new Set(values)].filter(Boolean).sort();
    const codes = distinct(refusals.map(([, kind]) => strings[kind])).filter(kind => kind !== TAKEN);
    const choices = {provider: distinct(nodes.map(row => providerName({providers}, row[PROVIDER]))), kind: distinct(nodes.map(row => strings[row[KIND]])),
      op: distinct(nodes.map(row => strings[row[OP]])), refused: codes};
    for (const [name, values] of Object.entries(choices)) this.form[name].append(option("", "any"), ...values.map(value => option(value)));
    this.form.refused.parentElement.hidden = !codes.length;
    this.form.group.append(option("", "nothing"), ...Object.keys(this.groups).map(name => option(name)));
    this.form.addEventListener("input", () => this.filter());
    this.form.addEventListener("submit", event => event.preventDefault());
    this.form.addEventListener("reset", () => { this.reason = null; setTimeout(() => this.filter()); });
  }

  filter() {
    const {strings, nodes} = this.data, words = this.form.text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const [provider, kind, op, refused] = ["provider", "kind", "op", "refused"].map(name => this.form[name].value);
    const shown = this.all.filter(node => {
      const row = nodes[node];
      return (!provider || providerName(this.data, row[PROVIDER]) === provider) && (!kind || strings[row[KIND]] === kind)
        && (!op || strings[row[OP]] === op) && words.every(word => this.haystacks[node].includes(word))
        && (!refused || refusalsOf(this.data, row).refused.some(no => no.code === refused))
        && (this.reason === null || row[REFUSALS].includes(this.reason));
    });
    this.table.update(shown, this.form.group.value);
    this.totals(shown);
    const narrowed = words.length || provider || kind || op || refused || this.reason !== null;
    if (this.picture) this.picture.find(narrowed ? new Set(shown) : null);
  }

  totals(shown) {
    const {nodes, profile} = this.data, sum = i => shown.reduce((total, node) => total + (nodes[node][i] || 0), 0);
    const parts = [`${shown.length} of ${this.all.length} rows`, `${countText(sum(FLOP))} operations`, `${countText(sum(NBYTES))} bytes`];
    if (profile) parts.push(`${timeText(sum(TIME))} (${(100 * sum(TIME) / (profile.ms || 1)).toFixed(1)} % of a run)`);
    if (profile && profile.before !== null) parts.push(`before: ${timeText(sum(BEFORE))}`);
    $("totals").textContent = parts.join(" \u00b7 ") + (this.reason === null ? "" : " \u00b7 of one reason");
  }

  showReason(number) {
    this.form.reset();
    this.reason = number;
    this.showTab("nodes");
    this.filter();
  }

  choose(node, reveal) {
    const item = this.tree.leaves[node];
    this.showTab("nodes");
    this.table.select(node, false);
    $("details").replaceChildren(...nodeDetails(this.data, node, {choose: other => this.choose(other, true)}));
    $("details").scrollTop = 0;
    if (!this.picture) return;
    if (item && reveal) this.picture.reveal(item);
    this.picture.select(item || null);
  }

  select(item) {
    this.picture.select(item);
    if (item && item.kind === "node") { this.choose(item.node, false); this.table.select(item.node, true); return; }
    this.table.select(-1, false);
    const shown = item === null ? [] : item.kind === "group" ? groupDetails(this.data, item) : endDetails(this.data, item);
    $("details").replaceChildren(...shown);
  }

  summary() {
    const {counts, copies, copied, profile} = this.data, inBodies = this.data.nodes.filter(row => this.data.strings[row[KIND]] === "body").length;
    const parts = Object.entries(counts).map(([name, count]) => `${name.replace(/ExecutionProvider$/, "")}: ${numberText(count)} nodes`);
    if (inBodies) parts.push(`in bodies: ${numberText(inBodies)}`);
    if (Object.keys(counts).length) parts.push(copies ? `${copies} copies between memories, ${numberText(copied)} bytes a run` : "no copies between memories");
    if (profile) parts.push(`a run: ${timeText(profile.ms)} (${profile.runs} runs, the fastest ${timeText(profile.fastest)})`);
    if (profile && profile.before !== null) parts.push(`before: ${timeText(profile.before)} (${changeText(profile.ms - profile.before)})`);
    $("summary").textContent = parts.join(" \u00b7 ");
    if (profile && profile.overhead) $("summary").after(element("p", {}, profile.overhead));
    if (profile && profile.estimated) $("summary").after(element("p", {}, "Some sizes are known in a run only: they count as 32."));
  }

  tabs(actions) {
    const {data} = this, found = [["nodes", this.hasPicture ? "Nodes" : "Kernels"]];
    const reasons = reasonsPane(data, $("reasons"), actions);
    if (data.edges.length || reasons) found.push(["reasons", `Reasons (${reasons})`]);
    if (data.profile && data.profile.roof) {
      const chart = rooflineChart(data, actions);
      $("roofline").append(element("h2", {}, "Roofline"), chart.svg, element("p", {class: "dim"}, chart.caption));
      found.push(["roofline", "Roofline"]);
    }
    stepsPane(data, $("steps"));
    if ($("steps").childNodes.length) found.push(["steps", "Steps"]);
    $("tabs").append(...found.map(([id, name]) => element("button", {role: "tab", "data-tab": id, "aria-controls": id, onclick: () => this.showTab(id)}, name)));
    this.showTab("nodes");
  }

  showTab(id) {
    for (const button of $("tabs").children) {
      button.setAttribute("aria-selected", String(button.dataset.tab === id));
      $(button.dataset.tab).hidden = button.dataset.tab !== id;
    }
    if (id === "nodes") this.table.draw();
  }
}

window.page = new Page(JSON.parse($("data").textContent));
