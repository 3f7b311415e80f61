// All that is known of what was chosen, its texts in full.
const TAKEN = "taken"; // of a provider that was not asked, as one before it has the node

function refusalsOf(data, row) {
  const found = row[REFUSALS].map(number => data.refusals[number].map(text => data.strings[text]))
    .map(([provider, code, reason, suggestion]) => ({provider, code, reason, suggestion}));
  return {refused: found.filter(no => no.code !== TAKEN), later: found.filter(no => no.code === TAKEN)};
}

function nodeDetails(data, number, actions) {
  const row = data.nodes[number], text = i => data.strings[row[i]], {refused, later} = refusalsOf(data, row);
  const rows = [["operator", code(text(OP))], ["provider", providerName(data, row[PROVIDER]) || "none"], ["kind", kindText(text(KIND))],
    ["kernel", code(text(KERNEL))], ["layer", layerPath(data, row[GROUP])], ["from", code(text(ORIGIN))], ["note", text(NOTE)],
    ["reads", valueList(data, row[INPUTS])], ["writes", valueList(data, row[OUTPUTS])],
    ["operations", row[FLOP] ? (row[ESTIMATED] ? "about " : "") + numberText(row[FLOP]) : ""],
    ["bytes", row[NBYTES] ? (row[ESTIMATED] ? "about " : "") + numberText(row[NBYTES]) : ""]];
  if (data.profile && row[GROUP] !== -2) {
    const other = row[PART_OF];
    rows.push(["time", row[TIME] !== null ? timeText(row[TIME]) : other >= 0
      ? element("button", {class: "link", onclick: () => actions.choose(other)}, `in the kernel of ${data.strings[data.nodes[other][NAME]]}`) : "none of its own"]);
    if (row[BEFORE] !== null) rows.push(["before", timeText(row[BEFORE])]);
  }
  if (later.length) rows.push(["later", `${later.map(no => no.provider).join(", ")}: not asked, since ${providerName(data, row[PROVIDER])} comes before`]);
  const parts = [element("h2", {}, text(NAME)), pairs(rows)];
  if (refused.length) {
    parts.push(element("h2", {}, `Why not another provider`), element("ul", {}, ...refused.map(no => element("li", {},
      element("b", {}, no.provider), " ", code(no.code), `: ${no.reason}`,
      ...(no.suggestion ? [element("br"), element("span", {class: "dim"}, no.suggestion)] : [])))));
  }
  return parts;
}

function groupDetails(data, group) {
  const counts = [...group.providers].map(([provider, count]) => `${providerName(data, provider) || "none"}: ${count}`).join(", ");
  const rows = [["nodes", `${group.count} (${counts})`], ["operations", group.flop ? numberText(group.flop) : ""],
    ["bytes", group.nbytes ? numberText(group.nbytes) : ""]];
  if (data.profile) {
    rows.push(["time", `${timeText(group.ms)} (${(100 * group.ms / (data.profile.ms || 1)).toFixed(1)} % of a run)`]);
    if (data.profile.before !== null) rows.push(["before", timeText(group.before)]);
  }
  return [element("h2", {}, group.path || group.name), pairs(rows)];
}

function endDetails(data, item) {
  const [name, type] = data.values[item.value];
  return [element("h2", {}, data.strings[name]), pairs([["kind", `${item.kind} of the model`], ["type", code(data.strings[type])]])];
}

function kindText(kind) {
  const meanings = {compiled: "compiled: machine code, or a vendor's compiler", host: "host: a function on arrays",
    view: "view: no work in a run", folded: "folded: computed, or removed, when the model was optimised",
    body: "body: run by the node whose body holds it"};
  return meanings[kind] || kind;
}

function pairs(rows) {
  return element("dl", {}, ...rows.filter(([, value]) => value !== "" && value !== null && value.textContent !== "").flatMap(([name, value]) =>
    [element("dt", {}, name), element("dd", {}, value)]));
}

function code(text) { return element("code", {}, text); }
function providerName(data, number) { return number < 0 ? "" : data.providers[number]; }

function layerPath(data, number) {
  const parts = [];
  for (let at = number; at >= 0; at = data.groups[at][0]) parts.unshift(data.strings[data.groups[at][1]]);
  return joinedPath(parts);
}

function valueList(data, values) {
  return element("span", {}, ...values.flatMap((value, i) => {
    const [name, type] = data.values[value].map(text => data.strings[text]);
    return [...(i ? [", "] : []), code(name), ...(type ? [element("span", {class: "dim"}, `: ${type}`)] : [])];
  }));
}

function reasonsPane(data, holder, actions) {
  const found = new Map();
  data.nodes.forEach((row, node) => {
    row[REFUSALS].forEach(number => { if (!found.has(number)) found.set(number, []); found.get(number).push(node); });
  });
  const all = [...found].map(([number, nodes]) => {
    const [provider, kind, reason, suggestion] = data.refusals[number].map(text => data.strings[text]);
    return {number, nodes, provider, kind, reason, suggestion};
  }).sort((a, b) => b.nodes.length - a.nodes.length);
  const card = each => element("div", {class: "reason"}, element("p", {}, element("b", {}, each.provider), " ", code(each.kind), ": ", each.reason),
    ...(each.suggestion ? [element("p", {class: "dim"}, each.suggestion)] : []),
    element("button", {class: "link", onclick: () => actions.showReason(each.number)}, `show ${each.nodes.length} node${each.nodes.length === 1 ? "" : "s"}`));
  const refused = all.filter(each => each.kind !== TAKEN), later = all.filter(each => each.kind === TAKEN);
  holder.append(element("h2", {}, refused.length ? "Refused, each reason once" : "No provider refused a node."), ...refused.map(card));
  if (later.length) {
    holder.append(element("h2", {}, "Not asked: a provider before them has the node"),
      element("ul", {}, ...later.map(each => element("li", {}, `${each.provider}: ${each.nodes.length} nodes`))));
  }
  return refused.length;
}

function stepsPane(data, holder) {
  if (data.steps.length) holder.append(element("h2", {}, "Steps of a run"), element("ol", {}, ...data.steps.map(step => element("li", {}, code(step)))));
  const lines = [...data.remarks, ...(data.profile ? data.profile.remarks : [])];
  if (lines.length) holder.append(element("h2", {}, "Remarks"), element("ul", {}, ...lines.map(line => element("li", {}, line))));
  if (data.choice) holder.append(element("h2", {}, 'providers="auto"'), element("pre", {}, data.choice));
}
