// Confusions, images, attention maps, histograms, texts and tables, with a slider over the updates.
const WIDE = 560; // pixels of an image from which on groups are not put side by side
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
    const img = el("img", {
      src: `data:image/png;base64,${frame.png}`,
      alt: frame.caption || name,
      title: "click to enlarge",
      width: frame.width * scale,
      height: frame.height * scale,
      class: scale > 1 && "tiny",
      onclick: () => {
        const large = img.classList.toggle("full");
        img.width = frame.width * scale * (large && img.clientWidth >= frame.width * scale ? 2 : 1);
        img.height = (img.width * frame.height) / frame.width;
      },
    });
    return el("div", {class: "scroll"}, img);
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
      const mean = (i, j) => sum(heads.map(head => head[i][j])) / heads.length / 1000;
      const top = Math.max(...rows.flatMap((_, i) => columns.map((_, j) => mean(i, j)))) || 1; // the darkest cell
      const read = (i, j) => {
        const weight = mean(i, j);
        return {share: weight / top, title: `${rows[i]} → ${columns[j]}: ${weight.toFixed(3)}`};
      };
      holder.replaceChildren(heat(rows, columns, "query ↓ key →", read, true), note(`darkest: ${top.toFixed(2)}`));
    };
    choose(weights);
    const pick = ({target: {value}}) => choose(value ? [weights[value]] : weights);
    const options = [
      el("option", {value: ""}, "mean"),
      weights.map((_, head) => el("option", {value: head}, head + 1)),
    ];
    return [el("label", {class: "slide"}, "Head", el("select", {onchange: pick}, options)), holder];
  },
  histogram: ({edges, counts}, _, group, frames) => {
    if (!counts.length) return null; // no value is finite
    const drawn = frames.filter(frame => frame.counts.length);
    const low = Math.min(...drawn.map(frame => frame.edges[0])); // the same axis for all groups
    const span = Math.max(...drawn.map(frame => frame.edges.at(-1))) - low;
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
function quantile({edges, counts, min, max}, share) {
  if (!counts.length) return null;
  let left = share * sum(counts);
  const i = counts.findIndex(number => number && (left -= number) <= 1e-9);
  const value = i < 0 ? edges.at(-1) : edges[i + 1] + (left / counts[i]) * (edges[i + 1] - edges[i]);
  return Math.min(Math.max(value, min), max);
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
  const wide = kind === "table" || groups.flat().some(frame => frame.width > WIDE);
  const style = {class: present.length > 1 && !wide ? "side many" : "side"};
  const side = el("div", style);
  const label = el("output");
  const put = (text, choose) => {
    const frames = present.map(group => choose(groups[group], group));
    label.textContent = text;
    const add = (frame, place) => {
      const group = present[place];
      const from = frame.update == null || text.startsWith(`update ${count(frame.update)}`) ? null : frame.update;
      return el(
        "div",
        null,
        many && el("p", null, tag(group)),
        RENDER[kind](frame, name, group, frames),
        note(frame.caption),
        note(frame.note),
        note(from != null && `from update ${count(from)}`),
      );
    };
    side.replaceChildren(...frames.map(add));
  };
  const find = (frames, update) => frames.findLast(frame => frame.update <= update) || frames[0];
  const turn = place => put(`update ${count(updates[place])}`, frames => find(frames, updates[place]));
  // the first view belongs to the numbers above, which are those of the best checkpoints
  const best = group => D.groups[group].best ?? Infinity;
  const first = present.map(group => find(groups[group], best(group)).update);
  const same = first.every(update => update === first[0]) && first[0] != null;
  const isBest = first.some((update, place) => update === best(present[place]));
  const words = [
    same && `update ${count(first[0])}`,
    isBest && (same ? "(best checkpoint)" : "at the best checkpoint"),
  ];
  put(words.filter(Boolean).join(" "), (frames, group) => find(frames, best(group)));
  const start = Math.max(
    0,
    updates.findLastIndex(update => update <= best(present[0])),
  );
  const slider = {type: "range", min: 0, max: last, value: start, "aria-label": `update of ${name}`};
  const moves = groups.some(frames => frames.length > 1);
  const input = moves && el("input", {...slider, oninput: event => turn(Number(event.target.value))});
  const plots =
    kind === "histogram" &&
    present.filter(group => groups[group].length > 2).map(group => overTime(groups[group], group % 8));
  return el(
    "figure",
    {class: "media"},
    el("h3", null, name),
    plots && el("div", style, plots),
    el("div", {class: "slide"}, input, label),
    side,
  );
}
