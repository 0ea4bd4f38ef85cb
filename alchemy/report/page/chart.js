// Line charts with bands, a cursor, zoom and smoothing; all charts of curves share one x-axis.
const HEIGHT = {curves: 220, free: 170};
const MARGIN = {left: 54, right: 8, top: 8, bottom: 24};
const FEW = 40; // points that are drawn as dots, too
const UNITS = {days: 86400, hours: 3600, minutes: 60, seconds: 1}; // a unit is used from 3 of them on
const charts = [];
const view = {axis: "update", from: null, to: null, smooth: 0, log: false};

const redraw = () => charts.forEach(chart => chart.redraw());
const reset = el("button", {type: "button", hidden: "", onclick: () => zoom(null, null)}, "Reset zoom");
function zoom(from, to) {
  Object.assign(view, {from, to});
  reset.hidden = from == null;
  redraw();
}

// -- the x-axis: updates, or epochs and run time, which the clock of a group gives for its updates
const longest = Math.max(0, ...D.groups.map(({clocks}) => clocks.time.at(-1)?.[1] ?? 0));
const unit = Object.keys(UNITS).find(name => longest >= 3 * UNITS[name]) ?? "seconds";
function convert(updates, group) {
  const clock = D.groups[group].clocks[view.axis];
  if (!clock) return updates;
  const scale = view.axis === "time" ? UNITS[unit] : 1;
  let next = 0;
  return updates.map(update => {
    while (next < clock.length - 1 && clock[next][0] < update) next++;
    const [to, high] = clock[next] ?? [update, 0];
    const [from, low] = clock[next - 1] ?? [0, 0];
    return (to > from ? low + ((high - low) * Math.min(update - from, to - from)) / (to - from) : high) / scale;
  });
}
function describe(x, free) {
  if (free || view.axis === "update") return `update ${count(Math.round(x))}`;
  return view.axis === "epoch" ? `epoch ${short(x, 3)}` : `${short(x, 3)} ${unit}`;
}

// -- numbers
function smooth(values, weight) {
  // as in TensorBoard, corrected for its start
  if (!weight) return values;
  let total = 0;
  let norm = 0;
  return values.map(value => {
    if (value == null) return null;
    total = weight * total + (1 - weight) * value;
    norm = weight * norm + 1 - weight;
    return total / norm;
  });
}
function ticks(low, high, wanted, log) {
  const found = [];
  if (log && Math.log10(high / low) >= 1.5) {
    const first = Math.ceil(Math.log10(low));
    const last = Math.floor(Math.log10(high));
    const step = Math.max(1, Math.ceil((last - first) / wanted));
    for (let power = first; power <= last; power += step) found.push(10 ** power);
    return found;
  }
  const rough = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5].find(factor => factor * power >= rough * 0.999) || 10);
  for (let place = Math.ceil(low / step); place * step <= high && found.length < 30; place++)
    found.push(Number((place * step).toPrecision(12)));
  return found;
}
function nearest(xs, x) {
  let low = 0;
  let high = xs.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle;
    else high = middle;
  }
  return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high;
}
function widen(low, high, log) {
  if (low > high) return log ? [1, 10] : [0, 1];
  if (low < high) return [low, high];
  const half = Math.abs(low) / 2 || 1;
  return log ? [low / 2, high * 2] : [low - half, high + half];
}

// -- drawing
function path(xs, ys, X, Y) {
  let text = "";
  let pen = "M";
  xs.forEach((x, i) => {
    const y = Y(ys[i]);
    text += y == null ? "" : `${pen}${X(x).toFixed(1)} ${y.toFixed(1)}`;
    pen = y == null ? "M" : "L";
  });
  return text;
}
function drawBand(xs, lower, upper, X, Y) {
  const known = xs.map((_, i) => i).filter(i => lower[i] != null && upper[i] != null);
  if (known.length < 2) return null;
  const pick = values => known.map(i => values[i]);
  const edge = path(pick(xs).reverse(), pick(lower).reverse(), X, Y);
  return draw("path", {class: "band", d: `${path(pick(xs), pick(upper), X, Y)}L${edge.slice(1)}Z`});
}
function drawLine({xs, ys, bands, raw, color, dash}, X, Y, bottom) {
  const clamp = y => (y == null ? null : (Y(y) ?? bottom)); // the lower edge of a band may be below 0
  const dot = (x, i) => (Y(ys[i]) == null ? null : draw("circle", {class: "dot", cx: X(x), cy: Y(ys[i]), r: 2.4}));
  return draw(
    "g",
    {class: `k${color}`},
    bands.map(([lower, upper]) => drawBand(xs, lower, upper, X, clamp)),
    raw && draw("path", {class: "ghost", d: path(xs, raw, X, Y)}),
    draw("path", {class: `path d${dash}`, d: path(xs, ys, X, Y)}),
    xs.length <= FEW && xs.map(dot),
  );
}

class Chart {
  // lines: {group, updates, ys, bands: [[low, high], ..], runs, gaps, color, dash, label}
  // a free chart is always by update, and ignores zoom and smoothing
  constructor(title, lines, free) {
    Object.assign(this, {lines, free, cursor: null, start: null, id: `clip${charts.length}`});
    this.svg = draw("svg", {class: "plot", tabindex: 0, role: "img", "aria-label": `curves: ${title}`});
    this.where = el("span", {class: "soft"});
    this.values = lines.map(() => el("b"));
    const key = ({color, dash, label}, i) =>
      el("span", null, el("i", {class: `key k${color} d${dash}`}), `${label} `, this.values[i]);
    const gaps = sum(lines.map(line => line.gaps));
    this.node = el(
      "figure",
      {class: "chart"},
      el("header", null, el("h3", null, title), this.where),
      this.svg,
      el("div", {class: "legend"}, lines.map(key)),
      note(gaps && `values that are not finite, shown as gaps: ${count(gaps)}`),
    );
    charts.push(this);
    this.listen();
  }

  listen() {
    const place = event => event.clientX - this.svg.getBoundingClientRect().left;
    const on = (name, act) => this.svg.addEventListener(name, event => this.X && act(event));
    const leave = () => {
      this.start = null;
      this.drag.setAttribute("width", 0);
      this.show(null);
    };
    on("pointerdown", event => (this.start = this.free ? null : place(event)));
    on("pointermove", event => {
      const x = place(event);
      this.show(this.at(x));
      if (this.start != null) fill(this.drag, {x: Math.min(this.start, x), width: Math.abs(x - this.start)}, []);
    });
    on("pointerup", event => {
      const ends = [this.start, place(event)].sort((a, b) => a - b);
      const dragged = this.start != null && ends[1] - ends[0] > 6;
      this.start = null;
      if (dragged) zoom(...ends.map(this.at));
    });
    on("pointerleave", leave);
    on("blur", leave);
    on("dblclick", () => zoom(null, null));
    on("keydown", event => this.press(event));
  }

  press(event) {
    const [from, to] = this.range;
    const x = this.cursor ?? to;
    const {xs} = this.shown.reduce((a, b) => (b.xs.length > a.xs.length ? b : a));
    const move = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    const quarter = (to - from) / 4;
    if (move) this.show(Math.min(Math.max(xs[nearest(xs, x) + move] ?? x, from), to));
    else if (event.key === "+" && !this.free) zoom(Math.max(from, x - quarter), Math.min(to, x + quarter));
    else if (event.key === "Escape") zoom(null, null);
    else return;
    event.preventDefault();
  }

  show(x) {
    // the cursor is at the same place in all charts with the same axis
    for (const chart of this.free ? [this] : charts.filter(other => !other.free && other.X)) chart.point(x);
  }

  redraw() {
    const width = this.svg.clientWidth;
    if (!width) return;
    this.prepare();
    this.measure(width, this.free ? HEIGHT.free : HEIGHT.curves);
    this.paint();
    this.point(null);
  }

  prepare() {
    // what is drawn of each line, and its range on the x-axis
    const weight = this.free ? 0 : view.smooth;
    this.shown = this.lines.map(line => {
      const several = line.runs > 1;
      return {
        ...line,
        xs: this.free ? line.updates : convert(line.updates, line.group),
        ys: smooth(line.ys, weight),
        bands: several ? line.bands.map(band => band.map(side => smooth(side, weight))) : line.bands,
        raw: weight && !several ? line.ys : null,
      };
    });
    const ends = this.shown.flatMap(({xs}) => [xs[0], xs.at(-1)]);
    this.range = this.free || view.from == null ? [Math.min(...ends), Math.max(...ends)] : [view.from, view.to];
    if (this.range[0] === this.range[1]) this.range = [this.range[0] - 1, this.range[1] + 1];
  }

  measure(width, height) {
    // the size of the chart, and the scales of both axes
    const log = !this.free && view.log;
    const fits = y => y != null && (!log || y > 0);
    const [from, to] = this.range;
    let [low, high] = [Infinity, -Infinity];
    for (const {xs, ys, bands, raw} of this.shown)
      for (const values of [ys, ...bands.flat(), raw ?? []])
        values.forEach((y, i) => {
          // also the points next to the window, which its lines lead to
          const inside = (xs[i + 1] ?? xs[i]) >= from && (xs[i - 1] ?? xs[i]) <= to;
          if (inside && fits(y)) [low, high] = [Math.min(low, y), Math.max(high, y)];
        });
    const scale = log ? Math.log10 : y => y;
    const back = log ? y => 10 ** y : y => y;
    const [base, peak] = widen(low, high, log).map(scale);
    const pad = (peak - base) * 0.04;
    const {left, top} = MARGIN;
    const right = width - MARGIN.right;
    const bottom = height - MARGIN.bottom;
    const share = y => (scale(y) - base + pad) / (peak - base + 2 * pad);
    this.X = x => left + ((x - from) / (to - from)) * (right - left);
    this.Y = y => (fits(y) ? bottom - share(y) * (bottom - top) : null);
    this.at = pixel => from + ((Math.min(Math.max(pixel, left), right) - left) / (right - left)) * (to - from);
    this.box = {width, height, left, right, top, bottom};
    this.levels = ticks(back(base - pad), back(peak + pad), 5, log);
  }

  paint() {
    const {X, Y} = this;
    const {width, height, left, right, top, bottom} = this.box;
    const inside = {x: left - 3, y: top - 3, width: right - left + 6, height: bottom - top + 6};
    const whole = this.free || view.axis === "update";
    const places = ticks(...this.range, Math.max(2, width / 80)).filter(x => !whole || Number.isInteger(x));
    this.drag = draw("rect", {class: "drag", y: top, height: bottom - top, width: 0});
    this.mark = draw("g");
    fill(this.svg, {height, viewBox: `0 0 ${width} ${height}`}, []);
    this.svg.replaceChildren(
      draw("clipPath", {id: this.id}, draw("rect", inside)),
      ...this.levels.map(y => draw("path", {class: "grid", d: `M${left} ${Y(y)}H${right}`})),
      ...this.levels.map(y => draw("text", {x: left - 7, y: Y(y) + 4, "text-anchor": "end"}, short(y))),
      ...places.map(x => draw("text", {x: X(x), y: height - 8, "text-anchor": "middle"}, whole ? count(x) : short(x))),
      draw("g", {"clip-path": `url(#${this.id})`}, this.shown.map(line => drawLine(line, X, Y, bottom)).reverse()),
      this.drag,
      this.mark,
    );
  }

  point(x) {
    // read the values at x, by default the last ones
    this.cursor = x;
    const last = xs =>
      Math.max(
        xs.findLastIndex(place => place <= this.range[1]),
        0,
      );
    const goal = x ?? this.range[1];
    const marks = [];
    let place = null;
    this.shown.forEach(({xs, ys, bands, runs, color}, i) => {
      const at = x == null ? last(xs) : nearest(xs, goal);
      const spread = runs > 1 && ys[at] != null ? ` ± ${short((bands[0][1][at] - bands[0][0][at]) / 2, 2)}` : "";
      this.values[i].textContent = short(ys[at]) + spread;
      if (place == null || Math.abs(xs[at] - goal) < Math.abs(place - goal)) place = xs[at];
      if (this.Y(ys[at]) != null)
        marks.push(draw("circle", {class: `dot k${color}`, cx: this.X(xs[at]), cy: this.Y(ys[at]), r: 3.5}));
    });
    this.where.textContent =
      x == null ? `last values${!this.free && view.smooth ? ", smoothed" : ""}` : describe(place, this.free);
    if (x == null) marks.length = 0;
    else marks.unshift(draw("path", {class: "cursor", d: `M${this.X(place)} ${this.box.top}V${this.box.bottom}`}));
    this.mark.replaceChildren(...marks);
  }
}

// -- the section of curves
function curves() {
  const build = ({title, lines}) => {
    const add = ({xs, ...line}) => {
      let update = 0;
      return {...line, updates: xs.map(step => (update += step))};
    };
    return new Chart(title, lines.map(add)).node;
  };
  const set = (name, read) => event => {
    view[name] = read(event.target);
    level.textContent = view.smooth;
    if (name === "axis") zoom(null, null);
    else redraw();
  };
  const level = el("output", null, "0");
  const steps = {type: "range", min: 0, max: 0.99, step: 0.01, value: 0};
  const axes = {update: "updates", epoch: "epochs", time: `run time (${unit})`};
  const known = Object.keys(axes).filter(
    name => name === "update" || D.groups.every(({clocks}) => clocks[name].length),
  );
  const options = known.map(name => el("option", {value: name}, axes[name]));
  const machine = D.curves.filter(panel => panel.machine);
  return [
    el(
      "div",
      {class: "bar"},
      el("label", null, "X-axis", el("select", {onchange: set("axis", input => input.value)}, options)),
      el("label", null, "Smoothing", el("input", {...steps, oninput: set("smooth", input => +input.value)}), level),
      el("label", null, el("input", {type: "checkbox", onchange: set("log", input => input.checked)}), "Logarithmic y"),
      reset,
      el("span", {class: "soft"}, "Drag to zoom, double-click to reset."),
    ),
    show([{kind: "tags"}]),
    el("div", {class: "charts"}, D.curves.filter(panel => !panel.machine).map(build)),
    note(D.curve_note),
    machine.length &&
      el("details", null, el("summary", null, "Time and system"), el("div", {class: "charts"}, machine.map(build))),
  ];
}
