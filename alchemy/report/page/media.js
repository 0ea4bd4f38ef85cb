// Confusions, images, attention maps, histograms, texts and tables, with a slider over the updates.
function heat(rows, columns, corner, read, dense) {
  const paint = (i, j) => {
    const {share, text, title, wrong} = read(i, j);
    const node = el("td", {title, class: `${share > 0.55 ? "strong" : ""} ${wrong ? "wrong" : ""}`}, text);
    node.style.setProperty("--v", share);
    return node;
  };
  const style = `heat${dense ? " dense" : ""}${columns.every(name => name.length < 4) ? " flat" : ""}`;
  const names = columns.map(name => el("th", {scope: "col", title: name}, el("span", null, name)));
  const line = (name, i) => {
    const cells = columns.map((_, j) => paint(i, j));
    return el("tr", null, el("th", {scope: "row", title: name}, name), cells);
  };
  const head = el("thead", null, el("tr", null, el("th", null, corner), names));
  return el(
    "div",
    {class: "scroll", tabindex: 0},
    el("table", {class: style}, head, el("tbody", null, rows.map(line))),
  );
}
const RENDER = {
  image: (frame, name) => {
    const scale = frame.width < 200 ? Math.min(4, Math.floor(400 / frame.width)) : 1;
    return el("img", {
      src: `data:image/png;base64,${frame.png}`,
      alt: frame.caption || name,
      width: frame.width * scale,
      height: frame.height * scale,
      class: scale > 1 && "tiny",
    });
  },
  text: frame => el("pre", {class: "wrap", tabindex: 0}, frame.text),
  table: frame => table({...frame, tall: true}),
  confusion: ({matrix, labels, pairs}) => {
    if (pairs)
      return table({
        columns: ["gold", "predicted", "count", "of this gold label"],
        rows: pairs.map(([gold, said, number, all]) => [gold, said, number, percent(number / all)]),
        tall: true,
      });
    const sums = matrix.map(sum);
    return heat(labels, labels, "gold ↓ predicted →", (i, j) => {
      const number = matrix[i][j];
      const share = number / (sums[i] || 1);
      const right = i === j;
      return {
        share: 0.85 * (right ? share : Math.sqrt(share)),
        text: number ? count(number) : "",
        wrong: !right,
        title: `gold ${labels[i]}, predicted ${labels[j]}: ${count(number)} (${percent(share)})`,
      };
    });
  },
  attention: ({rows, columns, weights}) => {
    const holder = el("div");
    const choose = heads => {
      const read = (i, j) => {
        const weight = sum(heads.map(head => head[i][j])) / heads.length / 1000;
        return {share: weight, title: `${rows[i]} → ${columns[j]}: ${weight.toFixed(3)}`};
      };
      holder.replaceChildren(heat(rows, columns, "", read, true));
    };
    choose(weights);
    const pick = ({target: {value}}) => choose(value ? [weights[value]] : weights);
    const options = [
      el("option", {value: ""}, "mean"),
      weights.map((_, head) => el("option", {value: head}, head + 1)),
    ];
    return [el("label", {class: "slide"}, "Head", el("select", {onchange: pick}, options)), holder];
  },
  histogram: ({edges, counts}, _, group) => {
    const low = edges[0];
    const span = edges.at(-1) - low;
    const X = value => 8 + ((value - low) / span) * 384;
    const heights = counts.map((number, i) => number / (edges[i + 1] - edges[i]));
    const unit = 100 / (Math.max(...heights) || 1);
    const column = (height, i) => {
      const width = Math.max(0.3, X(edges[i + 1]) - X(edges[i]) - 0.5);
      const box = {class: "dot", x: X(edges[i]), width, y: 110 - unit * height, height: unit * height};
      const title = `${short(edges[i])} to ${short(edges[i + 1])}: ${count(counts[i])}`;
      return draw("rect", box, draw("title", null, title));
    };
    const tick = value => draw("text", {x: X(value), y: 126, "text-anchor": "middle"}, short(value));
    const frame = {viewBox: "0 0 400 130", class: `k${group % 8}`};
    return draw("svg", frame, heights.map(column), ticks(low, low + span, 4).map(tick));
  },
};
function quantile({edges, counts}, share) {
  let left = share * sum(counts);
  const i = counts.findIndex(number => number && (left -= number) <= 1e-9);
  return i < 0 ? edges.at(-1) : edges[i + 1] + (left / counts[i]) * (edges[i + 1] - edges[i]);
}
function overTime(frames, color) {
  const at = share => frames.map(frame => quantile(frame, share));
  const updates = frames.map(frame => frame.update);
  const bands = [
    [at(0.05), at(0.95)],
    [at(0.25), at(0.75)],
  ];
  const line = {updates, ys: at(0.5), bands, runs: 1, gaps: 0, color, dash: 0, label: "median, 50 % and 90 %"};
  return new Chart("", [line], true).node;
}
function medium({kind, name, groups}) {
  const updates = [...new Set(groups.flat().map(frame => frame.update))].sort((a, b) => a - b);
  const last = updates.length - 1;
  const present = groups.map((_, group) => group).filter(group => groups[group].length);
  const style = {class: present.length > 1 && kind !== "table" ? "side many" : "side"};
  const side = el("div", style);
  const label = el("output");
  const turn = place => {
    const update = updates[place];
    label.textContent = update == null ? "" : `update ${count(update)}`;
    side.replaceChildren(
      ...present.map(group => {
        const frame = groups[group].findLast(one => one.update <= update) || groups[group][0];
        const other = frame.update !== update && frame.update != null;
        return el(
          "div",
          null,
          many && el("p", null, tag(group)),
          RENDER[kind](frame, name, group),
          note(frame.caption),
          note(frame.note),
          note(other && `from update ${count(frame.update)}`),
        );
      }),
    );
  };
  turn(last);
  const slider = {type: "range", min: 0, max: last, value: last, "aria-label": `update of ${name}`};
  const input = last > 0 && el("input", {...slider, oninput: event => turn(Number(event.target.value))});
  const history = kind === "histogram" && last > 1;
  const plots = history && present.map(group => overTime(groups[group], group % 8));
  return el(
    "figure",
    {class: "media"},
    el("h3", null, name),
    plots && el("div", style, plots),
    el("div", {class: "slide"}, input, label),
    side,
  );
}
