// Tables and texts, as Python has prepared them.
function cell(value) {
  if (value == null) return "";
  if (typeof value !== "object") return String(value);
  if (value.group != null)
    return [tag(value.group, value.brief), value.small && el("div", {class: "small"}, value.small)];
  return [value.text, value.small && el("span", {class: "small"}, value.small)];
}
function table({columns, rows, marked = [], main, tall}) {
  const typed = (place, test) =>
    rows.some(row => row[place] != null) && rows.every(row => row[place] == null || test(row[place]));
  const kinds = columns.map((_, place) =>
    typed(place, value => typeof value === "number" || value.text != null)
      ? "num"
      : rows.some(row => typeof row[place] === "string" && row[place].length > 40)
        ? "long"
        : null,
  );
  const entry = (value, place) => {
    const style = [kinds[place], value?.best && "best"].filter(Boolean).join(" ") || null;
    return el(place ? "td" : "th", {class: style, scope: place ? null : "row"}, cell(value));
  };
  const line = (row, number) =>
    row.length === 1 && columns.length > 1
      ? el("tr", {class: "split"}, el("th", {colspan: columns.length, scope: "rowgroup"}, cell(row[0])))
      : el("tr", {class: marked.includes(number) && "differs"}, row.map(entry));
  const names = columns.map((name, place) => el("th", {class: kinds[place], scope: "col"}, cell(name)));
  const head = el("thead", null, el("tr", null, names));
  const scrolls = tall && rows.length > 12;
  return el(
    "div",
    {class: scrolls ? "tall" : "scroll", tabindex: scrolls ? 0 : null},
    el("table", {class: main && "main"}, head, el("tbody", null, rows.map(line))),
  );
}
function diffLine(line) {
  const style = /^(@@|\+\+\+|---)/.test(line) ? "at" : {"+": "plus", "-": "minus"}[line[0]];
  return el("span", {class: style}, line);
}
function bigNumber({name, value, spread, small}) {
  const number = el("div", {class: "value"}, value, el("span", {class: "spread"}, spread));
  return el("div", null, el("div", {class: "name"}, name), number, el("div", {class: "small"}, small));
}
function failure({title, value, traceback}) {
  const more = traceback && show([{kind: "fold", title: "Traceback", value: [{kind: "pre", value: traceback}]}]);
  return el("div", {class: "fail"}, el("b", null, `✕ ${title}`), ` ${value}`, more);
}
const each = (tag, style, items) => el(tag, {class: style}, items);
const BLOCKS = {
  text: ({value, style}) => el("p", {class: style}, value),
  pre: ({value, style}) => el("pre", {tabindex: 0, class: style}, value),
  list: ({value, style}) =>
    each(
      "ul",
      style,
      value.map(item => el("li", null, item)),
    ),
  table: block => table(block),
  tags: () =>
    many &&
    each(
      "div",
      "facts",
      D.groups.map((_, group) => tag(group)),
    ),
  group: ({value}) => el("h3", null, tag(value)),
  title: ({value, small}) => el("h3", null, value, small && el("span", {class: "small"}, ` · ${small}`)),
  side: ({value}) =>
    each(
      "div",
      "side many",
      value.map(blocks => el("div", null, show(blocks))),
    ),
  fold: ({title, value, open}) =>
    el("details", {open: open ? "" : null}, el("summary", null, cell(title)), show(value)),
  big: ({value}) => each("div", "big", value.map(bigNumber)),
  diff: ({value}) => el("pre", {tabindex: 0}, value.split("\n").map(diffLine)),
  fail: failure,
};
const show = blocks => blocks.map(block => BLOCKS[block.kind](block));
