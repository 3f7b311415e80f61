// The roofline: operations a second over operations a byte, both by powers of ten; a dot for each kernel.
const CHART = {width: 860, height: 440, left: 70, right: 20, top: 16, bottom: 52};

function rooflineChart(data, actions) {
  const {roof, kernels} = data.profile, {width, height, left, right, top, bottom} = CHART;
  const points = kernels.filter(([, , ms, flop, nbytes]) => flop > 0 && nbytes > 0 && ms > 0).map(([name, op, ms, flop, nbytes, node, provider]) =>
    ({name: data.strings[name], op: data.strings[op], ms, flop, nbytes, node, provider, x: flop / nbytes, y: flop / ms / 1e6}));
  const peaks = [["float32", roof.gflop_per_s], ...Object.entries(roof.less)], most = Math.max(...peaks.map(([, peak]) => peak));
  const ridge = most / roof.gbyte_per_s;
  const log = value => Math.log10(value), [x0, x1] = spread([0.05, ridge * 8, ...points.map(p => p.x)]);
  const [y0, y1] = spread([most * 1.3, most / 1000, ...points.map(p => p.y)]);
  const px = value => left + (log(value) - x0) / (x1 - x0) * (width - left - right);
  const py = value => height - bottom - (log(value) - y0) / (y1 - y0) * (height - top - bottom);
  const svg = svgElement("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "roofline chart"});
  const text = (content, x, y, anchor, parent = svg) => {
    svgElement("text", {x, y, "text-anchor": anchor}, parent).textContent = content;
  };
  for (let at = Math.ceil(x0); at <= x1; at += 1) {
    svgElement("line", {class: "axis", x1: px(10 ** at), x2: px(10 ** at), y1: top, y2: height - bottom}, svg);
    text(powerText(at), px(10 ** at), height - bottom + 18, "middle");
  }
  for (let at = Math.ceil(y0); at <= y1; at += 1) {
    svgElement("line", {class: "axis", x1: left, x2: width - right, y1: py(10 ** at), y2: py(10 ** at)}, svg);
    text(powerText(at), left - 8, py(10 ** at) + 4, "end");
  }
  text("operations for each byte read or written", (left + width - right) / 2, height - 10, "middle");
  const title = svgElement("g", {transform: `rotate(-90 16 ${(top + height - bottom) / 2})`}, svg);
  text("GFLOP/s", 16, (top + height - bottom) / 2, "middle", title);
  for (const [, peak] of peaks) {
    const turn = peak / roof.gbyte_per_s, low = Math.max(10 ** x0, 10 ** y0 / roof.gbyte_per_s);
    svgElement("path", {class: "roof", d: `M${px(low)} ${py(low * roof.gbyte_per_s)}L${px(turn)} ${py(peak)}L${px(10 ** x1)} ${py(peak)}`}, svg);
  }
  for (const point of points.sort((a, b) => b.ms - a.ms)) {
    const r = 3 + 16 * Math.sqrt(point.ms / data.profile.ms);
    const dot = svgElement("circle", {cx: px(point.x), cy: py(point.y), r: r.toFixed(1), style: `fill:${colourOf(point.provider)}`}, svg);
    const peak = roof.less[(/\(([^()]*)\)$/.exec(point.name) || [])[1]] || roof.gflop_per_s; // as the kernel's name says its arithmetic
    const reached = Math.max(point.flop / peak / 1e6, point.nbytes / roof.gbyte_per_s / 1e6) / point.ms;
    svgElement("title", {}, dot).textContent = `${point.name} (${point.op})\n${timeText(point.ms)}, ${point.y.toFixed(1)} GFLOP/s, `
      + `${point.x.toFixed(2)} operations a byte, ${(100 * reached).toFixed(0)} % of the roof`;
    dot.addEventListener("click", () => point.node >= 0 && actions.choose(point.node));
  }
  const lines = peaks.map(([name, peak]) => `${numberText(peak)} GFLOP/s in ${name}`).join(", ");
  return {svg, caption: `The lines: ${lines}, ${roof.gbyte_per_s.toFixed(1)} GB/s. ${points.length} kernels that compute; the larger a dot, `
    + "the longer its kernel takes. One above the lines read its data from caches."};
}

function spread(values) { // powers of ten around all values
  const logs = values.filter(value => value > 0).map(Math.log10);
  return [Math.min(...logs) - 0.15, Math.max(...logs) + 0.15];
}

function powerText(at) { return at >= 0 && at < 6 ? numberText(10 ** at) : at >= -3 && at < 0 ? String(10 ** at).slice(0, 5) : `1e${at}`; }
