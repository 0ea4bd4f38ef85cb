// Elements and texts: every text becomes a text node, so that nothing is ever parsed as HTML.
"use strict";
const D = JSON.parse(document.getElementById("data").textContent);
const many = D.groups.length > 1;

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.flat(3).filter(Boolean));
  return node;
}
const el = (tag, props, ...children) => fill(document.createElement(tag), props, children);
const draw = (tag, props, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);
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
  return el(
    "span",
    {class: "tag"},
    el("i", {class: `swatch k${group % 8}`}),
    el("b", null, letter),
    brief ? "" : ` ${label}`,
  );
}
