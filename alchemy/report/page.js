
"use strict";
const D = JSON.parse(document.getElementById("data").textContent);
const many = D.groups.length > 1, charts = [], view = {from: null, to: null, smooth: 0, log: false};

// -- elements: every text becomes a text node, so that nothing is ever parsed as HTML
function fill(node, props, children) {
  for (const [name, value] of Object.entries(props || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.flat(3).filter(Boolean));
  return node;
}
const el = (tag, props, ...children) => fill(document.createElement(tag), props, children);
const draw = (tag, props, ...children) => fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);
const note = text => text && el("p", {class: "note"}, text);
const count = number => Number(number).toLocaleString("en-US");
const sum = values => values.reduce((a, b) => a + b, 0);
const percent = share => `${(100 * share).toFixed(1)} %`;
function short(value, digits = 4) {
  if (value == null) return "–";
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return count(value);
  const far = Math.abs(value) >= 1e6 || (value && Math.abs(value) < 1e-4);
  return far ? value.toExponential(2) : String(Number(value.toPrecision(digits)));
}
function tag(group, brief) {
  const {letter, label} = D.groups[group];
  return el("span", {class: "tag"}, el("i", {class: `swatch k${group % 8}`}), el("b", null, letter), brief ? "" : ` ${label}`);
}

// -- blocks: tables and texts as Python has prepared them
function cell(value) {
  if (value == null) return "";
  if (typeof value !== "object") return String(value);
  if (value.group != null) return [tag(value.group, value.brief), value.small && el("div", {class: "small"}, value.small)];
  return [value.text, value.small && el("span", {class: "small"}, value.small)];
}
function table({columns, rows, marked = [], main, tall}) {
  const typed = (place, test) => rows.some(row => row[place] != null) && rows.every(row => row[place] == null || test(row[place]));
  const kinds = columns.map((_, place) => typed(place, value => typeof value === "number" || value.text != null) ? "num"
    : rows.some(row => typeof row[place] === "string" && row[place].length > 40) ? "long" : null);
  const line = (row, number) => row.length === 1 && columns.length > 1
    ? el("tr", {class: "split"}, el("th", {colspan: columns.length, scope: "rowgroup"}, cell(row[0])))
    : el("tr", {class: marked.includes(number) && "differs"}, row.map((value, place) =>
      el(place ? "td" : "th", {class: [kinds[place], value && value.best && "best"].filter(Boolean).join(" ") || null, scope: place ? null : "row"}, cell(value))));
  const scrolls = tall && rows.length > 12;
  return el("div", {class: scrolls ? "tall" : "scroll", tabindex: scrolls ? 0 : null}, el("table", {class: main && "main"},
    el("thead", null, el("tr", null, columns.map((name, place) => el("th", {class: kinds[place], scope: "col"}, cell(name))))), el("tbody", null, rows.map(line))));
}
const BLOCKS = {
  text: block => el("p", {class: block.style}, block.value),
  pre: block => el("pre", {tabindex: 0, class: block.style}, block.value),
  list: block => el("ul", {class: block.style}, block.value.map(item => el("li", null, item))),
  table: block => table(block),
  tags: () => many ? el("div", {class: "facts"}, D.groups.map((_, group) => tag(group))) : null,
  group: block => el("h3", null, tag(block.value)),
  title: block => el("h3", null, block.value, block.small && el("span", {class: "small"}, ` · ${block.small}`)),
  side: block => el("div", {class: "side many"}, block.value.map(blocks => el("div", null, show(blocks)))),
  fold: block => el("details", {open: block.open ? "" : null}, el("summary", null, cell(block.title)), show(block.value)),
  big: block => el("div", {class: "big"}, block.value.map(one => el("div", null, el("div", {class: "name"}, one.name),
    el("div", {class: "value"}, one.value, el("span", {class: "spread"}, one.spread)), el("div", {class: "small"}, one.small)))),
  diff: block => el("pre", {tabindex: 0}, block.value.split("\n").map(line => el("span",
    {class: /^(@@|\+\+\+|---)/.test(line) ? "at" : {"+": "plus", "-": "minus"}[line[0]]}, line))),
  fail: block => el("div", {class: "fail"}, el("b", null, `✕ ${block.title}`), ` ${block.value}`, block.traceback && show([{kind: "fold", title: "Traceback", value: [{kind: "pre", value: block.traceback}]}])),
};
const show = blocks => blocks.map(block => BLOCKS[block.kind](block));

// -- charts
const redraw = () => charts.forEach(chart => chart.redraw());
const whole = el("button", {type: "button", hidden: "", onclick: () => zoom(null, null)}, "Reset zoom");
function zoom(from, to) {
  Object.assign(view, {from, to});
  whole.hidden = from == null;
  redraw();
}
function smooth(values, weight) {  // as in TensorBoard, corrected for its start
  let total = 0, norm = 0;
  return !weight ? values : values.map(value => {
    if (value == null) return null;
    total = weight * total + (1 - weight) * value;
    norm = weight * norm + 1 - weight;
    return total / norm;
  });
}
function ticks(low, high, wanted, log) {
  const found = [];
  if (log && Math.log10(high / low) >= 1.5) {
    const first = Math.ceil(Math.log10(low)), last = Math.floor(Math.log10(high));
    for (let power = first; power <= last; power += Math.max(1, Math.ceil((last - first) / wanted))) found.push(10 ** power);
    return found;
  }
  const rough = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5].find(factor => factor * power >= rough * .999) || 10);
  for (let place = Math.ceil(low / step); place * step <= high && found.length < 30; place++) found.push(Number((place * step).toPrecision(12)));
  return found;
}
function nearest(xs, x) {
  let low = 0, high = xs.length - 1;
  while (high - low > 1) { const middle = (low + high) >> 1; if (xs[middle] < x) low = middle; else high = middle; }
  return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high;
}
function path(xs, ys, X, Y) {
  let text = "", pen = "M";
  xs.forEach((x, i) => {
    const y = Y(ys[i]);
    text += y == null ? "" : `${pen}${X(x).toFixed(1)} ${y.toFixed(1)}`;
    pen = y == null ? "M" : "L";
  });
  return text;
}
class Chart {
  // lines: {xs, ys, bands: [[low, high], ..], runs, gaps, color, dash, label}; a free chart ignores zoom and smoothing
  constructor(title, lines, free) {
    Object.assign(this, {lines, free, cursor: null, id: `clip${charts.length}`});
    this.svg = draw("svg", {class: "plot", tabindex: 0, role: "img", "aria-label": `curves: ${title}`});
    this.where = el("span", {class: "soft"});
    this.values = lines.map(() => el("b"));
    const gaps = sum(lines.map(line => line.gaps));
    this.node = el("figure", {class: "chart"}, el("header", null, el("h3", null, title), this.where), this.svg,
      el("div", {class: "legend"}, lines.map((line, i) => el("span", null, el("i", {class: `key k${line.color} d${line.dash}`}), `${line.label} `, this.values[i]))),
      note(gaps && `values that are not finite, shown as gaps: ${count(gaps)}`));
    charts.push(this);
    let start = null;
    const on = (name, act) => this.svg.addEventListener(name, event => this.X && act(event, event.clientX - this.svg.getBoundingClientRect().left));
    on("pointerdown", (event, x) => { start = free ? null : x; });
    on("pointermove", (event, x) => {
      this.point(this.at(x));
      if (start != null) fill(this.drag, {x: Math.min(start, x), width: Math.abs(x - start)}, []);
    });
    on("pointerup", (event, x) => {
      const from = start;
      start = null;
      if (from != null && Math.abs(x - from) > 6) zoom(this.at(Math.min(from, x)), this.at(Math.max(from, x)));
    });
    for (const name of ["pointerleave", "blur"]) on(name, () => { start = null; this.drag.setAttribute("width", 0); this.point(null); });
    on("dblclick", () => zoom(null, null));
    on("keydown", event => {
      const [from, to] = this.range, x = this.cursor ?? to, {xs} = lines.reduce((a, b) => b.xs.length > a.xs.length ? b : a);
      const move = {ArrowLeft: -1, ArrowRight: 1}[event.key], half = (to - from) / 4;
      if (move) this.point(Math.min(Math.max(xs[nearest(xs, x) + move] ?? x, from), to));
      else if (event.key === "+" && !free) zoom(Math.max(from, x - half), Math.min(to, x + half));
      else if (event.key === "Escape") zoom(null, null);
      else return;
      event.preventDefault();
    });
  }
  redraw() {
    const width = this.svg.clientWidth, height = this.free ? 170 : 220, left = 54, right = width - 8, top = 8, bottom = height - 24;
    if (!width) return;
    const weight = this.free ? 0 : view.smooth, log = !this.free && view.log, fits = y => y != null && (!log || y > 0);
    let ends = this.lines.flatMap(({xs}) => [xs[0], xs[xs.length - 1]]), low = Infinity, high = -Infinity;
    let [from, to] = this.free || view.from == null ? [Math.min(...ends), Math.max(...ends)] : [view.from, view.to];
    if (from === to) [from, to] = [from - 1, to + 1];
    this.shown = this.lines.map(line => {
      const over = line.runs > 1, ys = smooth(line.ys, weight), bands = line.bands.map(band => over ? band.map(side => smooth(side, weight)) : band);
      const seen = [ys, ...bands.flat()].concat(weight && !over ? [line.ys] : []);
      line.xs.forEach((x, i) => { if (x >= from && x <= to) for (const values of seen) if (fits(values[i])) [low, high] = [Math.min(low, values[i]), Math.max(high, values[i])]; });
      return {...line, ys, bands, raw: weight && !over ? line.ys : null};
    });
    if (low > high) [low, high] = log ? [1, 10] : [0, 1];
    if (low === high) [low, high] = log ? [low / 2, high * 2] : [low - (Math.abs(low) / 2 || 1), high + (Math.abs(high) / 2 || 1)];
    const scale = log ? Math.log10 : y => y, back = log ? y => 10 ** y : y => y, pad = (scale(high) - scale(low)) * .04, base = scale(low) - pad, over = scale(high) + pad;
    const X = this.X = x => left + (x - from) / (to - from) * (right - left);
    const Y = this.Y = y => fits(y) ? bottom - (scale(y) - base) / (over - base) * (bottom - top) : null;
    this.at = pixel => from + (Math.min(Math.max(pixel, left), right) - left) / (right - left) * (to - from);
    this.range = [from, to];
    const grid = ticks(back(base), back(over), 5, log).map(y => [draw("path", {class: "grid", d: `M${left} ${Y(y)}H${right}`}), draw("text", {x: left - 7, y: Y(y) + 4, "text-anchor": "end"}, short(y))]);
    const below = ticks(from, to, Math.max(2, width / 110)).filter(Number.isInteger).map(x => draw("text", {x: X(x), y: height - 8, "text-anchor": "middle"}, count(x)));
    const floor = y => y == null ? null : Y(y) ?? bottom;  // the lower edge of a band may be below 0
    const body = this.shown.map(({xs, ys, bands, raw, color, dash}) => draw("g", {class: `k${color}`},
      bands.map(([lower, upper]) => {
        const known = xs.map((_, i) => i).filter(i => lower[i] != null && upper[i] != null), pick = values => known.map(i => values[i]);
        const edge = path(pick(xs).reverse(), pick(lower).reverse(), X, floor);
        return known.length > 1 ? draw("path", {class: "band", d: `${path(pick(xs), pick(upper), X, floor)}L${edge.slice(1)}Z`}) : null;
      }),
      raw ? draw("path", {class: "ghost", d: path(xs, raw, X, Y)}) : null, draw("path", {class: `path d${dash}`, d: path(xs, ys, X, Y)}),
      xs.length <= 40 ? xs.map((x, i) => Y(ys[i]) == null ? null : draw("circle", {class: "dot", cx: X(x), cy: Y(ys[i]), r: 2.4})) : null));
    this.drag = draw("rect", {class: "drag", y: top, height: bottom - top, width: 0});
    this.mark = draw("g");
    fill(this.svg, {height, viewBox: `0 0 ${width} ${height}`}, []);
    this.svg.replaceChildren(draw("clipPath", {id: this.id}, draw("rect", {x: left - 3, y: top - 3, width: right - left + 6, height: bottom - top + 6})),
      ...grid.flat(), ...below, draw("g", {"clip-path": `url(#${this.id})`}, body.reverse()), this.drag, this.mark);
    this.rule = x => draw("path", {class: "cursor", d: `M${X(x)} ${top}V${bottom}`});
    this.point(null);
  }
  point(x) {  // read the values at x, by default the last ones
    this.cursor = x;
    const goal = x ?? this.range[1], dots = [];
    let place = null;
    this.shown.forEach(({xs, ys, bands, runs, color}, i) => {
      const at = nearest(xs, goal), spread = runs > 1 && ys[at] != null ? ` ± ${short((bands[0][1][at] - bands[0][0][at]) / 2, 2)}` : "";
      this.values[i].textContent = short(ys[at]) + spread;
      if (place == null || Math.abs(xs[at] - goal) < Math.abs(place - goal)) place = xs[at];
      if (this.Y(ys[at]) != null) dots.push(draw("circle", {class: `dot k${color}`, cx: this.X(xs[at]), cy: this.Y(ys[at]), r: 3.5}));
    });
    this.where.textContent = x == null ? "" : `update ${count(place)}`;
    this.mark.replaceChildren(...(x == null ? [] : [this.rule(place), ...dots]));
  }
}
function curves() {
  const build = ({title, lines}) => new Chart(title, lines.map(line => {
    let at = 0;
    return {...line, xs: line.xs.map(step => at += step)};
  })).node;
  const level = el("output", null, "0"), machine = D.curves.filter(panel => panel.machine);
  const set = change => event => { change(event.target); redraw(); };
  return [el("div", {class: "bar"},
    el("label", null, "Smoothing", el("input", {type: "range", min: 0, max: .99, step: .01, value: 0, oninput: set(input => { level.textContent = view.smooth = Number(input.value); })}), level),
    el("label", null, el("input", {type: "checkbox", onchange: set(input => { view.log = input.checked; })}), "Logarithmic axis"),
    whole, el("span", {class: "soft"}, "Drag to zoom, double-click to reset.")), show([{kind: "tags"}]),
    el("div", {class: "charts"}, D.curves.filter(panel => !panel.machine).map(build)), note(D.curve_note),
    machine.length && el("details", null, el("summary", null, "Time and system"), el("div", {class: "charts"}, machine.map(build)))];
}

// -- media
function heat(rows, columns, corner, read, dense) {
  const paint = (i, j) => {
    const {share, text, title, wrong} = read(i, j), node = el("td", {title, class: `${share > .55 ? "strong" : ""} ${wrong ? "wrong" : ""}`}, text);
    node.style.setProperty("--v", share);
    return node;
  };
  return el("div", {class: "scroll", tabindex: 0}, el("table", {class: `heat${dense ? " dense" : ""}${columns.every(name => name.length < 4) ? " flat" : ""}`},
    el("thead", null, el("tr", null, el("th", null, corner), columns.map(name => el("th", {scope: "col", title: name}, el("span", null, name))))),
    el("tbody", null, rows.map((name, i) => el("tr", null, el("th", {scope: "row", title: name}, name), columns.map((_, j) => paint(i, j)))))));
}
const RENDER = {
  image: (frame, name) => {
    const scale = frame.width < 200 ? Math.min(4, Math.floor(400 / frame.width)) : 1;
    return el("img", {src: `data:image/png;base64,${frame.png}`, alt: frame.caption || name, width: frame.width * scale, height: frame.height * scale, class: scale > 1 && "tiny"});
  },
  text: frame => el("pre", {class: "wrap", tabindex: 0}, frame.text),
  table: frame => table({...frame, tall: true}),
  confusion: ({matrix, labels, pairs}) => {
    if (pairs) return table({columns: ["gold", "predicted", "count", "of this gold label"], rows: pairs.map(([gold, said, number, all]) => [gold, said, number, percent(number / all)]), tall: true});
    const sums = matrix.map(sum);
    return heat(labels, labels, "gold ↓ predicted →", (i, j) => {
      const number = matrix[i][j], share = number / (sums[i] || 1), right = i === j;
      return {share: .85 * (right ? share : Math.sqrt(share)), text: number ? count(number) : "", wrong: !right, title: `gold ${labels[i]}, predicted ${labels[j]}: ${count(number)} (${percent(share)})`};
    });
  },
  attention: ({rows, columns, weights}) => {
    const holder = el("div");
    const choose = heads => holder.replaceChildren(heat(rows, columns, "", (i, j) => {
      const weight = sum(heads.map(head => head[i][j])) / heads.length / 1000;
      return {share: weight, title: `${rows[i]} → ${columns[j]}: ${weight.toFixed(3)}`};
    }, true));
    choose(weights);
    const pick = ({target: {value}}) => choose(value ? [weights[value]] : weights);
    return [el("label", {class: "slide"}, "Head", el("select", {onchange: pick}, el("option", {value: ""}, "mean"), weights.map((_, head) => el("option", {value: head}, head + 1)))), holder];
  },
  histogram: ({edges, counts}, _, group) => {
    const low = edges[0], span = edges[edges.length - 1] - low, X = value => 8 + (value - low) / span * 384;
    const heights = counts.map((number, i) => number / (edges[i + 1] - edges[i])), unit = 100 / (Math.max(...heights) || 1);
    return draw("svg", {viewBox: "0 0 400 130", class: `k${group % 8}`},
      heights.map((height, i) => draw("rect", {class: "dot", x: X(edges[i]), width: Math.max(.3, X(edges[i + 1]) - X(edges[i]) - .5), y: 110 - unit * height, height: unit * height},
        draw("title", null, `${short(edges[i])} to ${short(edges[i + 1])}: ${count(counts[i])}`))),
      ticks(low, low + span, 4).map(value => draw("text", {x: X(value), y: 126, "text-anchor": "middle"}, short(value))));
  },
};
function quantile({edges, counts}, share) {
  let left = share * sum(counts);
  const i = counts.findIndex(number => number && (left -= number) <= 1e-9);
  return i < 0 ? edges[edges.length - 1] : edges[i + 1] + left / counts[i] * (edges[i + 1] - edges[i]);
}
function overTime(frames, color) {
  const at = share => frames.map(frame => quantile(frame, share));
  return new Chart("", [{xs: frames.map(frame => frame.update), ys: at(.5), bands: [[at(.05), at(.95)], [at(.25), at(.75)]], runs: 1, gaps: 0, color, dash: 0, label: "median, 50 % and 90 %"}], true).node;
}
function medium({kind, name, groups}) {
  const updates = [...new Set(groups.flat().map(frame => frame.update))].sort((a, b) => a - b), last = updates.length - 1;
  const present = groups.map((_, group) => group).filter(group => groups[group].length), style = {class: present.length > 1 && kind !== "table" ? "side many" : "side"};
  const side = el("div", style), label = el("output");
  const turn = place => {
    const update = updates[place];
    label.textContent = update == null ? "" : `update ${count(update)}`;
    side.replaceChildren(...present.map(group => {
      const frame = groups[group].findLast(one => one.update <= update) || groups[group][0], other = frame.update !== update && frame.update != null;
      return el("div", null, many && el("p", null, tag(group)), RENDER[kind](frame, name, group), note(frame.caption), note(frame.note), note(other && `from update ${count(frame.update)}`));
    }));
  };
  turn(last);
  return el("figure", {class: "media"}, el("h3", null, name), kind === "histogram" && last > 1 ? el("div", style, present.map(group => overTime(groups[group], group % 8))) : null,
    el("div", {class: "slide"}, last ? el("input", {type: "range", min: 0, max: last, value: last, "aria-label": `update of ${name}`, oninput: event => turn(Number(event.target.value))}) : null, label), side);
}

// -- the page
const page = document.getElementById("page"), nav = el("nav", {"aria-label": "sections"});
page.append(el("header", null, el("h1", null, D.title), show(D.head)), nav);
for (const {id, title, note: origin, blocks, media} of D.sections) {
  nav.append(el("a", {href: `#${id}`}, title));
  page.append(el("section", {id}, el("h2", null, title), note(origin), id === "curves" ? curves() : media ? media.map((each, place) => media.length > 6 && place > 1 ? el("details", null, el("summary", null, each.name), medium(each)) : medium(each)) : show(blocks)));
}
page.append(el("footer", null, D.foot.map(text => el("p", null, text))));
redraw();
document.addEventListener("toggle", redraw, true);
addEventListener("resize", redraw);
addEventListener("beforeprint", () => document.querySelectorAll("#config details, #code details").forEach(node => node.open = true));
